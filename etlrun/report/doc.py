"""Documents: what a result says, without a word on how it is drawn."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from etlrun.system.terminal import significant

Text = Callable[[Any], str]


class Line(NamedTuple):
    """A fact.

    Attributes:
        label: What it is about; empty for a sentence of its own.
        text: The fact, or a `Link`.
        beside: What stands smaller beside it, such as an interval.
        style: `good`, `bad`, `mark`, `accent`, `soft` or `strong`, as the package says; empty for none.
    """

    label: str
    text: "str | Link"
    beside: str = ""
    style: str = ""


class Link(NamedTuple):
    """Text that leads to an address, on pages and in Markdown."""

    text: str
    address: str


class Picture(NamedTuple):
    """An image.

    Attributes:
        url: Its data URL, or an address; empty for a text in its place.
        text: What stands below it, in one or several lines.
        alt: What it shows, for screen readers.
        width: Pixels on the page.
        height: Pixels on the page.
    """

    url: str
    text: str = ""
    alt: str = ""
    width: int = 64
    height: int = 64


@dataclass(frozen=True)
class Col:
    """Column of a table.

    Attributes:
        name: Its head.
        read: Name of an attribute of a row if it isn't `name`, or function from a row to a value: a number, a text, a
            truth, a `Link`, a `Picture`, or a list of them.
        format: Format of numbers, such as `.2f` or `.1%`; without one five significant digits are shown.
        text: Function from a row to what is shown of it; JSON and sorting have the value.
        title: Its whole name, where `name` is short.
        note: Lines below its head, on pages.
        style: Function from a row to the style of its cell.
        share: Function from a row to how dark its cell is, from 0 to 1.
        bar: Whether pages show a bar, as long as the value is large.
        is_head: Whether its cells are the heads of the rows.
        is_long: Whether its texts may be wrapped.
        is_code: Whether its texts are code.
        differs: Values beside which terminals leave the column out where all rows have the same; None to show it.
    """

    name: str
    read: str | Callable[[Any], Any] = ""
    format: str = ""
    text: Text | None = None
    title: str = ""
    note: str = ""
    style: Text | None = None
    share: Callable[[Any], float | None] | None = None
    bar: bool = False
    is_head: bool = False
    is_long: bool = False
    is_code: bool = False
    differs: Collection[str] | None = None

    def value(self, row: Any) -> Any:
        """Return the value of a row in this column."""
        return getattr(row, self.read or self.name) if isinstance(self.read, str) else self.read(row)

    def cell(self, row: Any) -> str:
        """Return the text of a row in this column; `-` for a value that is missing, nothing for a picture."""
        return self.text(row) if self.text else worded(self.value(row), self.format)


def worded(value: Any, spec: str = "") -> str:
    """Return a value as text; `-` for None."""
    match value:
        case None:
            return "-"
        case Link() | Picture():
            return value.text
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return format(value, spec) if spec else f"{value:,}" if isinstance(value, int) else significant(value)
        case list() | tuple():
            return ", ".join(map(worded, value))
    return str(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and no truth."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Part of a document.

    Attributes:
        title: Its heading.
        note: What is to be known about it, below.
        only: Formats that show it; empty for all.
        is_folded: Whether it is opened by a click, where there are any.
        style: `good`, `bad`, `mark`, `accent`, `soft` or `strong`, as the package says; empty for none.
    """

    title: str = ""
    note: str = ""
    only: Collection[str] = ()
    is_folded: bool = False
    style: str = ""


@dataclass(frozen=True)
class Lines(Part):
    """Facts, each in a line; pages show them in large letters if they are so."""

    lines: Sequence[Line | tuple[str, str | Link]]
    _: KW_ONLY
    is_large: bool = False

    def each(self) -> list[Line]:
        """Return the lines that say something."""
        return [Line(*line) for line in self.lines if line[1]]


@dataclass(frozen=True)
class Paragraph(Part):
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code(Part):
    """Text as it is: a command, or a file.

    Attributes:
        text: The text.
        language: Its language, for Markdown.
        is_copied: Whether pages offer to copy it.
    """

    text: str
    _: KW_ONLY
    language: str = ""
    is_copied: bool = False


@dataclass(frozen=True)
class Table(Part):
    """Rows of the same kind.

    Attributes:
        rows: Rows.
        columns: How they are read.
        most: Rows that terminals and notebooks show; None for all.
        sort: Name of the column by which the rows are sorted, and readers of a page may sort and filter them; or empty.
        falls: Whether it is sorted from the smallest value on.
        mark: Function from a row to whether it stands out.
        words: Function from a row to words by which a page finds it, beside those of its cells.
    """

    rows: Sequence[Any]
    columns: Sequence[Col]
    _: KW_ONLY
    most: int | None = None
    sort: str = ""
    falls: bool = False
    mark: Callable[[Any], bool] | None = None
    words: Text | None = None

    @property
    def values(self) -> list[dict[str, Any]]:
        """Plain values of all rows, by the names of the columns."""
        return [{column.name: column.value(row) for column in self.columns} for row in self.rows]

    def filled(self, *, is_terminal: bool = False) -> list[tuple[Col, list[str]]]:
        """Return the columns in which there is something, with the text of each row."""
        columns = [(column, [column.cell(row) for row in self.rows]) for column in self.columns]
        return [
            (column, cells)
            for column, cells in columns
            if any(cell.strip("-") for cell in cells) or any(has_picture(column.value(row)) for row in self.rows)
            if not is_terminal
            or column.differs is None  # else one that is the same for all rows, and nothing wrong, is left out
            or len(cells) == 1
            or len(set(cells)) > 1
            or cells[0] in column.differs
        ]


def has_picture(value: Any) -> bool:
    """Return whether a value is an image, or a list with one."""
    return isinstance(value, Picture) or (isinstance(value, list) and any(map(has_picture, value)))


class Series(NamedTuple):
    """Marks of a chart that belong together.

    Attributes:
        name: Name in the legend.
        points: x and y of each, in the order of x for a line; y is None, NaN or infinite where there is no value.
        look: Class of the style sheet: first, second, third, fourth, other, ideal.
        mark: `line`, `dot`, `cloud` of many points, or `bar` on top of those of the series before.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    look: str = "first"
    mark: str = "line"


@dataclass(frozen=True)
class Chart(Part):
    """A chart, for pages and notebooks.

    Attributes:
        series: Its marks.
        x: What the horizontal axis is.
        y: What the vertical axis is.
        unit: Whether both axes go from 0 to 1.
    """

    series: Sequence[Series]
    _: KW_ONLY
    x: str = ""
    y: str = ""
    unit: bool = False


@dataclass(frozen=True)
class Images(Part):
    """Images side by side; they may be made one after another as they are drawn."""

    pictures: Iterable[Picture]


@dataclass(frozen=True)
class Section(Part):
    """Parts below a title of their own."""

    title: str = field()
    parts: Sequence[Part]


@dataclass(frozen=True)
class Doc:
    """A result.

    Attributes:
        title: What came of it.
        parts: What there is to say and to show.
        over: What it is of.
        badge: State and its style, behind `over`.
        foot: Command that made it.
        refresh_s: Seconds after which a page loads itself again; 0 for never.
        json: Function that returns what JSON has, as plain values; None for the rows of the first table.
    """

    title: str
    parts: Sequence[Part]
    _: KW_ONLY
    over: str = ""
    badge: tuple[str, str] | None = None
    foot: str = ""
    refresh_s: int = 0
    json: Callable[[], Any] | None = None


def parts_for(parts: Sequence[Part], name: str) -> list[Part]:
    """Return the parts for a format in which there is something."""
    return [part for part in parts if (not part.only or name in part.only) and not _is_empty(part)]


def _is_empty(part: Part) -> bool:
    """Return whether there is nothing to draw."""
    match part:
        case Lines():
            return not part.each()
        case Chart():
            return not any(each.points for each in part.series)
        case Section():
            return all(map(_is_empty, part.parts))
        case Images(pictures=pictures):
            return pictures in ([], ())
    return not next(getattr(part, name) for name in ("text", "rows") if hasattr(part, name))
