"""Types of columns: inferred from all values, batch by batch, and conversion to them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.stages.rows import BETWEEN
from etlrun.system.errors import counted, printable

_LONGEST = 40


def shown(value: object) -> str:
    """Return a value on one short line."""
    try:
        text = printable(str(value))
    except ValueError:  # of more digits than Python writes
        return f"a value of type {type(value).__name__}"
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text


def is_list(values: pa.DataType) -> bool:
    """Return whether a type is that of lists."""
    return hasattr(values, "value_field")


Kind = Literal[
    "integer", "whole", "number", "truth", "timestamp", "zoned", "text", "integers", "numbers", "image", "image file"
]
"""Types of `dataset.columns`; `whole` are integers that int64 does not hold, `zoned` timestamps with a zone.

`integers` and `numbers` are lists of them, of different lengths; an `image` is an encoded one, an `image file` a path.
"""

_NUMBERS: tuple[Kind, ...] = ("integer", "whole", "number")
_ALL: tuple[Kind, ...] = (*_NUMBERS, "truth", "timestamp", "zoned")
TIMES: tuple[Kind, ...] = ("timestamp", "zoned")
LISTS: tuple[Kind, ...] = ("integers", "numbers")
Kinds: TypeAlias = Mapping[str, Kind]
FoundKinds: TypeAlias = dict[str, Kind | None]
"""Kinds of columns by name; None for one without a value."""


def type_of(kind: str) -> pa.DataType:
    """Return the type in which columns of a kind are kept."""
    types = {
        "integer": pa.int64(),
        "truth": pa.bool_(),
        "timestamp": pa.timestamp("us"),
        "zoned": pa.timestamp("us"),
        "text": pa.large_string(),
        "integers": pa.large_list(pa.int64()),
        "numbers": pa.large_list(pa.float64()),
        "image": pa.large_binary(),
        "image file": pa.large_string(),
    }
    return types.get(kind, pa.float64())


_IMAGE_FILE = {"file": "image"}
"""Metadata of columns whose texts are paths of images."""


def field_of(name: str, kind: Kind, metadata: Mapping[str, str] | None = None) -> pa.Field:
    """Return the field in which a column of a kind is kept."""
    return pa.field(name, type_of(kind), metadata=_IMAGE_FILE if kind == "image file" else metadata)


_PADDED = r"^[+-]?0[0-9xX]"
"""Numbers with leading zeros are codes; a hexadecimal one is a text."""
_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_PLAIN = r"^\s*-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_TRUTHS = pa.array(["true", "false"])
_HALF = 0.5


stripped = pc.utf8_trim_whitespace
"""Return texts without the blanks around them."""


def has_blanks(values: pa.Array) -> bool:
    """Return whether there are blanks around any of these texts."""
    return has_any(pc.not_equal(stripped(values), values))


def composed(values: pa.Array) -> pa.Array:
    """Return texts in Unicode's NFC, in which a letter with an accent is one character wherever it may be."""
    is_plain = pc.all(pc.string_is_ascii(values), min_count=0).as_py()
    return values if is_plain else pc.utf8_normalize(values, form="NFC")


def has_any(mask: pa.Array) -> bool:
    """Return whether any value of a mask is true."""
    return pc.any(mask).as_py() is True


def _casts(values: pa.Array, kind: pa.DataType) -> bool:
    return works(lambda of: of.cast(kind), pa.ArrowInvalid)(values)


def works(work: Callable[[Any], Any], *errors: type[Exception]) -> Callable[[Any], bool]:
    """Return the function that tells whether `work` raises none of `errors`."""

    def fits(values: Any) -> bool:
        try:
            work(values)
        except errors:
            return False
        return True

    return fits


_FIRST = 64, 4_096
"""Values that are looked at before all are: one that Arrow can't convert takes 20 times as long as others."""


def _fits(values: pa.Array, kind: Kind) -> bool:
    """Return whether all of these texts, of which none is missing, are of a kind."""
    firsts = (values[:count] for count in _FIRST if count < len(values))
    return all(_all_fit(some, kind) for some in firsts) and _all_fit(values, kind)


def _all_fit(values: pa.Array, kind: Kind) -> bool:
    if kind == "whole":
        return pc.all(pc.match_substring_regex(values, _WHOLE)).as_py() is True
    if kind == "truth":
        return pc.all(pc.is_in(pc.utf8_lower(values), value_set=_TRUTHS)).as_py() is True
    if kind in _NUMBERS and has_any(pc.match_substring_regex(values, _PADDED)):
        return False
    return _casts(values, pa.timestamp("us", "UTC") if kind == "zoned" else type_of(kind))


def _narrowed(values: pa.Array, known: Kind | None) -> Kind:
    """Return the first kind of which the values are, as those before them were."""
    among = _ALL
    if known is not None:
        among = _NUMBERS[_NUMBERS.index(known) :] if known in _NUMBERS else (known,)
    return next((kind for kind in among if _fits(values, kind)), "text")


@dataclass
class Seen:
    """What has been seen of a column of texts so far.

    Attributes:
        kind: The first kind of which all values are; None while all are missing.
        count: Number of values that are not missing.
        too_large: Row, from 0, and text of the first integer that int64 does not hold; None if there is none.
        numbers: Number of values that are written as numbers.
        other: Row and text of the first one that is not; None if there is none.
    """

    kind: Kind | None = None
    count: int = 0
    too_large: tuple[int, str] | None = None
    numbers: int = 0
    other: tuple[int, str] | None = None

    def add(self, values: pa.Array, first: int) -> None:
        """Take notice of the next values, of which the first is that of row `first`, counted from 0."""
        there = values.drop_null()
        if not len(there):
            return
        if self.kind != "text":
            before, self.kind = self.kind, _narrowed(there, self.kind)
            if self.kind == "text" and has_blanks(there):
                self.kind = _narrowed(stripped(there), before)
            if self.kind == "whole" and self.too_large is None:
                at = halved(values, lambda some: _casts(stripped(some), pa.int64()))
                self.too_large = None if at is None else (first + at, _plain(values[at]))
        if self.kind == "text" and (self.numbers or not self.count):
            are_numbers = pc.match_substring_regex(values, _PLAIN)
            self.numbers += pc.sum(are_numbers).as_py()
            if self.other is None and (place := pc.index(are_numbers, value=False).as_py()) >= 0:
                self.other = first + place, values[place].as_py()
        elif self.kind in _NUMBERS:
            self.numbers += len(there)
        self.count += len(there)

    def notes(self, name: str, where: Callable[[int], str], nothing: str) -> Iterator[str]:
        """Yield the note on texts of which most are numbers; `where` names a row, `nothing` makes a text missing."""
        if self.kind == "text" and self.other is not None and self.numbers >= _HALF * self.count:
            row, text = self.other
            share = f"though {self.numbers:,} of {counted(self.count, 'value')} are numbers"
            yield f"{name} is text, since {where(row)} has '{shown(text)}', {share}: repair it, or {nothing}."


_PLAINLY_TEXT = r"[^-+.:,/_\s0-9a-fA-FiIlLnNrRsStTuUxXyYzZ]"
"""A character that no number, truth value or time has."""
_MOST_DIGITS = 18


def kind_in_common(parts: Sequence[pa.Array]) -> Kind | None:
    """Return the kind of texts of which all parts are, or those of numbers together; None unless that is plain.

    It is where each part has a value, and, of texts, begins with one that is none of another kind.
    """
    if len({part.type for part in parts}) > 1 or any(part.null_count == len(part) for part in parts):
        return None
    values = pa.concat_arrays(parts).drop_null()
    kind = _narrowed(values, None)
    if kind == "text":
        firsts = pa.concat_arrays([part.drop_null()[:1] for part in parts])
        is_plain = pc.all(pc.match_substring_regex(firsts, _PLAINLY_TEXT)).as_py()
        return kind if is_plain and not has_any(pc.match_substring_regex(values, _PLAIN)) else None
    if kind == "number":  # or else a part of it may be `whole`
        return kind if pc.max(pc.binary_length(values)).as_py() <= _MOST_DIGITS else None
    return kind if kind in ("integer", "truth") else None


def joined(one: Kind | None, other: Kind | None) -> Kind | None:
    """Return the kind of the values of two files; `text` where they have none in common."""
    if one is None or other is None or one == other:
        return one or other
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    if one in LISTS and other in LISTS:
        return "numbers"
    return "text"


def as_kept(values: pa.Array, kind: str, *, strip: bool) -> pa.Array:
    """Return values as a column of a kind keeps them, of times also those with zones; raises as `converted` does."""
    try:
        found = converted(values, kind)
    except pa.ArrowInvalid:
        found = converted(values, "zoned" if kind == "timestamp" else kind)
    return composed(pc.utf8_trim_whitespace(found) if strip else found) if kind == "text" else found


def converted(values: pa.Array, kind: str) -> pa.Array:
    """Return values in the type in which their kind is kept; raise `ArrowInvalid` if one is not of that kind."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_list_view(values.type) or pa.types.is_large_list_view(values.type):
        lengths = pc.list_value_length(values).fill_null(0).cast(pa.int64())
        ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
        values = pa.LargeListArray.from_arrays(ends, values.flatten(), mask=values.is_null())
    if kind == "text" and is_list(values.type):
        return pc.binary_join(values.cast(pa.large_list(pa.large_string())), pa.scalar(BETWEEN, pa.large_string()))
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if kind in TIMES and not is_text:
        return values.cast(type_of(kind), safe=not (pa.types.is_timestamp(values.type) and values.type.unit == "ns"))
    if kind == "integer" and pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    if not is_text or kind == "text":
        return values.cast(type_of(kind), safe=kind != "number")  # which rounds integers
    through = pa.timestamp("us", "UTC") if kind == "zoned" else type_of(kind)
    try:
        found = values.cast(through)
    except pa.ArrowInvalid:
        texts = pc.replace_substring_regex(
            pc.utf8_trim_whitespace(values), r"^(-?[0-9]+)\.0*$", r"\1"
        )  # of integers as 1.0
        found = texts.cast(through)
    return found.cast(type_of(kind))


def has_fraction(values: pa.Array) -> bool:
    """Return whether any of these values is a number that is no integer."""
    return pa.types.is_floating(values.type) and not _casts(values, pa.int64())


_CHECKS: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    "integer": (pa.types.is_integer,),
    "number": (pa.types.is_floating, pa.types.is_decimal),
    "truth": (pa.types.is_boolean,),
    "timestamp": (pa.types.is_timestamp, pa.types.is_date),
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
}
_LISTS_OF: dict[Kind | None, Kind | None] = {
    None: None, "integer": "integers", "number": "numbers", "text": "text"
}  # fmt: skip


def kind_of_type(values: pa.DataType) -> Kind | None:
    """Return the kind of values of a type; None for one without values, `ArrowInvalid` if it is not kept."""
    if pa.types.is_dictionary(values):
        return kind_of_type(values.value_type)
    if pa.types.is_null(values):
        return None
    if is_list(values):
        items = values.value_type
        if not (is_list(items) or pa.types.is_dictionary(items)) and (kind := kind_of_type(items)) in _LISTS_OF:
            return _LISTS_OF[kind]
    elif pa.types.is_timestamp(values) and values.tz is not None:
        return "zoned"
    for kind, checks in _CHECKS.items():
        if any(check(values) for check in checks):
            return kind
    raise pa.ArrowInvalid(f"values of type {values}")


def first_unfit(values: pa.Array, kind: Kind) -> tuple[int, Any]:
    """Return place and value of the first one that can't be converted to a kind."""

    def convert(some: pa.Array) -> None:
        converted(some, kind).validate(full=True)

    place = halved(values, works(convert, pa.ArrowInvalid, pa.ArrowNotImplementedError)) or 0
    return place, _plain(values[place])


def halved(values: Any, fits: Callable[[Any], bool]) -> int | None:
    """Return the place of the first value that does not fit those before it, found by halving; None if all fit."""
    if fits(values):
        return None
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(values[:middle]) else (low, middle)
    return low


def _plain(value: pa.Scalar) -> Any:
    """Return a value as Python has it; bytes of a text that is none, and the number of a time that is too far."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.cast(pa.large_binary()).as_py()
    except OverflowError:
        return value.value
