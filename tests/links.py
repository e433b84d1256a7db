"""Links of the repository's Markdown files; `python -m tests.links` lists those that lead to other servers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/etlrun/etlrun"
_CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1|`[^`\n]+`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)|<(https?://[^>\s]+)>|(?:href|src|srcset)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ +(.*?)#*$", re.MULTILINE)


@dataclass(frozen=True)
class Link:
    """A link: the file that has it, the number of its line, and what it leads to, as written."""

    page: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.target}"

    @property
    def path(self) -> Path | None:
        """The file of this repository that it leads to; None for one on another server, and for a mail."""
        own = re.match(rf"{re.escape(REPOSITORY)}/(?:blob|tree|raw)/main/([^#?]+)", self.target)
        if own is not None:
            return ROOT / own[1]
        if re.match(r"[a-z]+:", self.target):
            return None
        name = self.target.partition("#")[0]
        return (self.page.parent / name).resolve() if name else self.page

    @property
    def anchor(self) -> str:
        """The heading of that file that it leads to, as in an address; empty for none."""
        return self.target.partition("#")[2]


def pages() -> list[Path]:
    """All files that people read as pages: in docs/, .github/ and the root."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / ".github").rglob("*.md")])


def links(page: Path) -> Iterator[Link]:
    """The links of a page, outside of code."""
    text = _without_code(page)
    for found in _LINK.finditer(text):
        target = next(filter(None, found.groups()))
        yield Link(page, text.count("\n", 0, found.start()) + 1, target)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in _HEADING.findall(text))
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


def _without_code(page: Path) -> str:
    """The text of a page with its code left out, but for its line ends."""
    text = page.read_text(encoding="utf-8")
    return _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)


if __name__ == "__main__":
    external = [link for page in pages() for link in links(page) if link.path is None]
    print(*sorted({f"{link.target}  {link.page.relative_to(ROOT)}" for link in external}), sep="\n")
