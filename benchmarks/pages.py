"""Hook of MkDocs: a link to a result that is a paragraph of its own is replaced with the table that it leads to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = re.compile(r"^\[(benchmarks/results/[\w/.]+)\]\(\.\./\1\)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with the tables of its results."""
    return RESULT.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8"), markdown)
