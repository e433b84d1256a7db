"""Extension of Python-Markdown: the site shows a table of results where a page has a paragraph that is a link to it.

On GitHub the link leads to the table.
"""

from __future__ import annotations

import re
from pathlib import Path

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

ROOT = Path(__file__).resolve().parent.parent
FILES = "https://github.com/etlrun/etlrun/blob/main/"
RESULT = re.compile(rf"^\[(benchmarks/results/[\w/.]+)\]\({re.escape(FILES)}\1\)$", re.MULTILINE)


class _Tables(Preprocessor):
    """Replaces the links of a page."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines of a page with the tables of its results."""
        page = "\n".join(lines)
        return RESULT.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8"), page).split("\n")


class Tables(Extension):
    """Shows the tables of results."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - as Python-Markdown calls it
        """Add itself before what reads the lines of a page."""
        md.preprocessors.register(_Tables(md), "results", 50)
