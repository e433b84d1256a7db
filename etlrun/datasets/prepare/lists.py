"""Lists of images with their labels and splits: CSV or JSON lines."""

from __future__ import annotations

import csv
import json
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from etlrun.datasets.prepare.files import Files, entries_of
from etlrun.datasets.prepare.source import classes_of, first, of_classes
from etlrun.sources.layout import WHOLE
from etlrun.system.errors import EtlrunError, Fault, fault, one_line, printable

SUFFIXES = (".csv", ".jsonl")
_COLUMNS = ("path", "label")
_EXPECTED = "the columns path and label, and optionally split"
_SEPARATORS = {";": "';'", "\t": "tabs", "|": "'|'"}
_Row = tuple[str, Mapping[str, Any]]


def of_list(path: Path) -> Files:
    """Return the images of a list, whose paths are relative to its folder; raise `EtlrunError` with all faults."""
    faults: list[Fault] = []
    try:
        rows = list(_csv(path, faults) if path.suffix.lower() == ".csv" else _json_lines(path, faults))
    except (UnicodeDecodeError, csv.Error) as error:
        raise EtlrunError([fault(path, one_line(error), "a list in UTF-8", "save it as UTF-8")]) from error
    has_splits = any("split" in row for _, row in rows)
    images = [image for where, row in rows if (image := _image(where, row, has_splits, faults))]
    if not faults and not images:
        faults.append(fault(path, "no images", f"{_EXPECTED}, and a line for each image", "add lines to the list"))
    if faults:
        raise EtlrunError(first(faults, path, "faults"))
    entries = entries_of(path, path.parent, images, {})
    classes = classes_of(entry.label for entry in entries)
    faults += of_classes(path, entries, classes)
    if faults:
        raise EtlrunError(faults)
    return Files(path, path.parent, entries, classes)


def _csv(path: Path, faults: list[Fault]) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        columns = rows.fieldnames or ()
        again = [name for name in (*_COLUMNS, "split") if columns.count(name) > 1]
        if again:
            found, remedy = f"several columns {' and '.join(again)}", "remove or rename all but one"
            faults.append(fault(f"{path}:1", found, "each column once", remedy))
            return
        missing = [name for name in _COLUMNS if name not in columns]
        if missing:
            found = f"the columns {', '.join(map(printable, columns))}" if columns else "no line"
            remedy = f"add {' and '.join(missing)} to the first line"
            if mark := next((of for of in _SEPARATORS if len(columns) == 1 and of in columns[0]), ""):
                found = f"one column, {columns[0]!r}, which looks separated by {_SEPARATORS[mark]}"
                remedy = "save the list with commas between the columns"
            faults.append(fault(f"{path}:1", found, _EXPECTED, remedy))
            return
        for row in rows:
            more: Any = row.pop(None, ())  # values behind the last column
            if any(more):
                found = f"{len(columns) + len(more)} values for {len(columns)} columns"
                remedy = 'put a value that has a comma in quotation marks, as "a, b"'
                faults.append(fault(f"{path}:{rows.line_num}", found, "a value for each column", remedy))
                continue
            yield f"{path}:{rows.line_num}", row


def _json_lines(path: Path, faults: list[Fault]) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, object_pairs_hook=_once)
            except _AgainError as error:
                faults.append(
                    fault(f"{path}:{number}", f"several values of {error}", "each key once", "remove all but one")
                )
                continue
            except ValueError as error:
                row = str(error)
            if isinstance(row, dict):
                yield f"{path}:{number}", row
            else:
                example = '{"path": "rose.jpg", "label": "rose"}'
                faults.append(fault(f"{path}:{number}", printable(line.strip()[:60]), f"an object: {example}", ""))


class _AgainError(Exception):
    """A key that an object of JSON has again."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise `_AgainError` if a key occurs twice, of which `json` takes the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _AgainError(next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place])))
    return found


def _image(where: str, row: Mapping[str, Any], has_splits: bool, faults: list[Fault]) -> tuple[str, str, str] | None:  # noqa: FBT001 - of the whole list
    wanted = (*_COLUMNS, "split") if has_splits else _COLUMNS
    values = {key: str(row[key]) if _is_text(row.get(key)) else "" for key in wanted}
    missing = [key for key, value in values.items() if not value]
    if missing:
        faults.append(
            fault(
                where,
                ", ".join(f"{key}={row[key]!r}" if row.get(key) not in (None, "") else f"no {key}" for key in missing),
                f"text for {', '.join(wanted)}",
                "complete the line or remove it",
            )
        )
        return None
    path = posixpath.normpath(values["path"])
    if path.startswith(("/", "../")) or path == "..":
        faults.append(
            fault(
                where,
                printable(values["path"]),
                "a path within the folder of the list",
                "put the list into a folder above all of its images",
            )
        )
        return None
    return path, values["label"], values.get("split", WHOLE)


def _is_text(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
