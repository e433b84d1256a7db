"""The commands and the pasted outputs of README.md and docs/, and which pasted lines no real output has.

Two lines are alike that have the same words: figures, sizes, times, hashes and absolute paths may differ, and so may
spaces. Lines that begin with a figure, such as the rows of a table, may stand in any order; all others have theirs.
In the table of a sweep a row may say of its config another result, and that something else bounds it, in the product's
own words. So may a run of its baseline. `…` stands for lines that are left out; no other line needs it.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import get_args

from etlrun.measure.gains import BETTER, TIED, WORSE
from etlrun.record.summary import Kind

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
ETLRUN = "python -m etlrun"
LEFT_OUT = "…"
_PROGRAMS = "pip|python|docker|etlrun|pytest|tensorboard|eval"
_COMMAND = re.compile(rf"    ((?:{_PROGRAMS}) .*)")
_INLINE = re.compile(rf"`((?:{_PROGRAMS}) [^`]+)`")
_FIGURES = (
    (re.compile(r"(?<!\S)~?/\S*/(?=outputs/)"), ""),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "#"),
    (re.compile(r"(?<![\w.…])~?/[\w.~-][\w./~-]*"), "PATH"),
    (re.compile(r"(?<![A-Za-z_])\d(?:[\d.,:/_-]*\d)?"), "#"),
    (re.compile(r"# (?:bytes|[kMGT]B)\b"), "SIZE"),
    (re.compile(r"# (?:s|min|h|d) ago\b"), "AGE"),
    (re.compile(r"the network is (?:better|worse|not better by more than noise)"), "RESULT"),
)
_ROW = re.compile(r"\W*#\*? ")
_SWEEP = re.compile(r"config +\w.* examples/s ")
_BAR = " | "
_CELLS = re.compile(r" {2,}")
_BOUND = re.compile(rf"(?:extract|transform|cache|load|model)\.\w+|{'|'.join(get_args(Kind))}")


@dataclass(frozen=True)
class Paste:
    """What a page shows of the output of a command, as `commands` has it; its lines with their numbers in the file."""

    page: Path
    command: str
    lines: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.lines[0][0]}"


def commands() -> list[str]:
    """Each command of all pages, once; `etlrun` is called as `python -m etlrun`, and what it prints goes to no file."""
    return sorted({command for page in PAGES for command in _read(page)[0]})


def pastes() -> list[Paste]:
    """All of them, in the order of the pages."""
    return [paste for page in PAGES for paste in _read(page)[1]]


def _read(page: Path) -> tuple[list[str], list[Paste]]:
    """What is fenced without a language, or stands right behind a command, is the output of the last command."""
    found: list[str] = []
    shown: list[Paste] = []
    last, is_next = "", False
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for _, line in lines:
        if line.startswith("```"):
            fenced = list(takewhile(lambda numbered: numbered[1] != "```", lines))
            asked, output = _transcript(fenced)
            found += asked
            if asked or line == "```" or is_next:
                shown.append(Paste(page, asked[0] if asked else last, tuple(output)))
        elif match := _COMMAND.fullmatch(line):
            block = _parts(_whole(match[1], lines))
            found += block
            last = next((command for command in block if command.startswith(ETLRUN)), last)
            is_next = True
        else:
            found += [command for inline in _INLINE.findall(line) for command in _parts(inline)]
            is_next = is_next and not line.strip()
    return found, shown


def _transcript(fenced: Sequence[tuple[int, str]]) -> tuple[list[str], list[tuple[int, str]]]:
    """The command that a fence shows before its output, if it does."""
    asked = [command for _, line in fenced if line.startswith("$ ") for command in _parts(line.removeprefix("$ "))]
    return asked, [(number, line) for number, line in fenced if line.strip() and not line.startswith("$ ")]


def _whole(line: str, lines: Iterator[tuple[int, str]]) -> str:
    """A command with the lines that it goes on in."""
    while line.endswith("\\"):
        line = line.removesuffix("\\") + next(lines)[1].strip()
    return line


def _parts(line: str) -> list[str]:
    whole = [line] if line.startswith(("docker", "eval")) else line.split(" && ")
    words = [" ".join(part.partition(" > ")[0].split()) for part in whole]
    return [re.sub(r"^etlrun(?= |$)", ETLRUN, command) for command in words]


@dataclass(frozen=True)
class Line:
    """A line of an output: its number in the file, its text, and of its shape what has to be the same."""

    number: int
    text: str
    shape: str

    @property
    def is_row(self) -> bool:
        """Whether it may stand in any order."""
        return _ROW.match(self.shape) is not None


def shapes(lines: Iterable[tuple[int, str]]) -> list[Line]:
    """Of the lines that are not empty."""
    found: list[Line] = []
    in_sweep = False
    for number, text in lines:
        in_sweep = in_sweep and (text.startswith(" ") or text == LEFT_OUT)
        if text.strip():
            found.append(Line(number, text, _of_sweep(text) if in_sweep else _shape(text)))
        in_sweep = in_sweep or _SWEEP.match(text) is not None
    return found


def _shape(text: str) -> str:
    for pattern, placeholder in _FIGURES:
        text = pattern.sub(placeholder, text)
    return " ".join(text.split())


def _of_sweep(text: str) -> str:
    """A row of a sweep's table, with bars between its cells."""
    return _BAR.join(_measured(_shape(cell)) for cell in _CELLS.split(text.strip()))


def _measured(cell: str) -> str:
    """What depends on the machine in a cell: a figure may be unknown, too."""
    if cell in {BETTER, TIED, WORSE}:
        return "CALL"
    return "BOUND" if _BOUND.fullmatch(cell) else "#" if cell == "-" else cell


def lacking(paste: Paste, real: str, others: Sequence[str] = ()) -> list[str]:
    """What is wrong with each pasted line that the output `real` lacks.

    `others` are outputs of what the command might have said as well, had it measured something else.
    """
    found = shapes(enumerate(real.splitlines()))
    known = {line.shape for other in others for line in shapes(enumerate(other.splitlines()))}
    wrong, place = [], 0
    for line in shapes(paste.lines):
        if line.text == LEFT_OUT or line.shape in known:
            continue
        places = [at for at, candidate in enumerate(found) if candidate.shape == line.shape]
        if not line.is_row:
            places = [at for at in places if at >= place]
            place = places[0] + 1 if places else place
        if not places:
            wrong.append(_told(paste, line, found))
    return wrong


def _told(paste: Paste, line: Line, found: Sequence[Line]) -> str:
    texts = {candidate.shape: candidate.text for candidate in found}
    near = difflib.get_close_matches(line.shape, texts, n=1)
    nearest = f"; nearest is\n  {texts[near[0]]}" if near else ""
    where = f"{paste.page.relative_to(ROOT)}:{line.number}"
    return f"{where}: `{paste.command}` prints no line (any more, or not there) like\n  {line.text}{nearest}"


def fenced(page: str, part: str) -> str:
    """The fenced text of a page in docs/ that has `part` in it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if part in block)
