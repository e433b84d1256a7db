"""Files of TFRecords as tables: each serialised example is a row, whose features have one value or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from etlrun.sources.content import Numbered, whole
from etlrun.sources.framing import array_of, count_of, kind_of
from etlrun.sources.rows.kinds import Kind
from etlrun.sources.rows.read import TableFile, named, names_beside
from etlrun.sources.shards import counts_of
from etlrun.sources.tfrecord import features_in
from etlrun.stages.rows import Errors
from etlrun.system.errors import EtlrunError, Fault, WorldError, refuse

_AT_ONCE = 1_024
_KINDS: Mapping[str, Kind] = {"a string": "text", "int64": "integer", "float32": "number"}


class ExamplesFile(TableFile):
    """A file of serialised examples; a feature that one lacks is a missing value."""

    def __init__(self, path: str, errors: Errors) -> None:
        """Read the features of the first example; raise `EtlrunError` if there is none, or the file is damaged."""
        super().__init__(path, errors)
        faults: list[Fault] = []
        self._count = counts_of([path], faults)[path]
        refuse(faults, EtlrunError)
        if not self._count:
            raise WorldError(path, "no records", "at least one example", "write the file again")
        self._classes = names_beside(path)
        self._records = Numbered(whole({path: self._count}))
        self.names = sorted(self._examples(0, 1)[0])
        if not self.names:
            raise WorldError(self.where(0), "an example without features", "features", "write the file again")

    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        found: dict[str, Kind | None] = dict.fromkeys(self.names)
        for start in range(0, self._count, _AT_ONCE):
            for row, example in enumerate(self._examples(start, start + _AT_ONCE), start):
                for name, feature in example.items():
                    count, kind, classes = count_of(feature), _KINDS.get(kind_of(feature)), self._classes.get(name, ())
                    number = feature.int64_list.value[0] if classes and count and kind == "integer" else -1
                    odd, expected = "", ""
                    if name not in found:
                        odd, expected = "a feature that the first example lacks", ", ".join(found)
                    elif count and found[name] not in (None, kind):
                        odd, expected = f"a value of type {kind}", f"values of type {found[name]}, as before"
                    elif not -1 <= number < max(len(classes), 1):
                        last = len(classes) - 1
                        odd, expected = (
                            f"{number}",
                            f"the number of a class, from 0 to {last}, as {name}.labels.txt has them",
                        )
                    if odd:
                        remedy = "write the files again, or read others"
                        raise WorldError(f"{self.where(row)}, {name}", odd, expected, remedy)
                    if count > 1:
                        self.left_out.setdefault(name, f"{count:,} values in {self.name}, record {row}")
                    found[name] = kind if count else found[name]
            self.position = self.bytes * min(start + _AT_ONCE, self._count) // self._count
            tell()
        return {name: "text" if kind == "integer" and name in self._classes else kind for name, kind in found.items()}

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        for start in range(0, self._count, _AT_ONCE):
            examples = self._examples(start, start + _AT_ONCE)
            arrays = {name: array_of([example[name] for example in examples]) for name in kinds}
            columns = [
                named(values, self._classes[name]) if kinds[name] == "text" and name in self._classes else values
                for name, values in arrays.items()
            ]
            self.position = self.bytes * min(start + _AT_ONCE, self._count) // self._count
            yield self.in_utf8(pa.RecordBatch.from_arrays(columns, names=[*kinds]))

    def where(self, row: int) -> str:
        return f"{self.path}, record {row}"

    def _examples(self, start: int, stop: int) -> list[Any]:
        """Return the features of some examples, by name."""
        found: list[Any] = []
        for number in range(start, min(stop, self._count)):
            try:
                found.append(features_in(self._records.one(number)))
            except (DecodeError, ValueError) as error:
                what, expected = "a damaged record, or none of tf.train.Example", "a serialised example"
                raise WorldError(self.where(number), what, expected, "write the file again") from error
        return found
