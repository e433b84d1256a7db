"""Columns of a run in its folder: what was chosen and fitted, so that the run is planned again without its rows."""

import dataclasses
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from etlrun.planning.spec import RunSpec, parse
from etlrun.record.config import known_config
from etlrun.stages import STAGES
from etlrun.stages.columns import Columns, outputs_of
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Feature
from etlrun.stages.rows import Column, Known, Rows
from etlrun.stages.step import Map
from etlrun.system.errors import EtlrunError, WorldError, headline
from etlrun.system.files import write_atomically
from etlrun.system.values import Block

FILE = "columns.json"


def with_columns(spec: RunSpec, columns: Columns, dataset: Dataset) -> RunSpec:
    """Return a run with these columns, and this dataset."""
    return replace(spec, dataset=dataset).with_maps(partial(with_step, columns))


def with_step(columns: Columns, of: Map) -> Map:
    """Return a map with other columns in the place of its own, if it has some."""
    return replace(of, steps=tuple(columns if isinstance(step, Columns) else step for step in of.steps))


def write(spec: RunSpec, folder: Path) -> None:
    """Write the columns of a planned run of rows into its folder; nothing of other runs."""
    columns, dataset = spec.columns, spec.dataset
    if columns is not None and isinstance(dataset, Rows) and dataset.found.identity:
        write_atomically(folder / FILE, as_json(columns, dataset.found))


def as_json(columns: Columns, known: Known) -> str:
    """Return columns and what is known of the rows as JSON, with a line for each column and for each output."""
    held: Block = {
        "identity": known.identity,
        "rows": dict(known.rows),
        "held_bytes": known.held_bytes,
        "classes": list(known.classes),
        "notes": [*known.notes],
        "left_out": dict(known.left_out),
        "columns": {},
        "outputs": columns.described(),
        "shares": dict(columns.shares),
    }
    for name, column in known.columns.items():  # of its feature, what differs from that of a plain number
        feature = {of.name: (getattr(column.feature, of.name), of.default) for of in dataclasses.fields(column.feature)}
        given = {key: value for key, (value, default) in feature.items() if value != default}
        given |= {"is_path": True} if column.is_path else {}
        held["columns"][name] = {**given, "missing": column.missing, "distinct": column.distinct}
    lines = []
    for key, value in held.items():
        text = json.dumps(value)
        if isinstance(value, dict) and value:
            text = ",\n".join(f"  {json.dumps(name)}: {json.dumps(of)}" for name, of in value.items())
            text = f"{{\n{text}\n }}"
        lines.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def recalled(spec: RunSpec, folder: Path) -> RunSpec:
    """Return a run of rows with the columns that its folder keeps; `WorldError` if they are gone or can't be read."""
    if not isinstance(spec.dataset, Rows) or spec.columns is None:
        return spec
    columns, known = _held(folder)
    return with_columns(spec, columns, replace(spec.dataset, known=known))


def of_resumed(spec: RunSpec, known: Known) -> Columns | None:
    """Return the columns of the run that another one resumes; None if it was asked for others, or of other rows."""
    folder = None if spec.fit is None or spec.fit.resume is None else Path(spec.fit.resume)
    if folder is None or not (folder / FILE).is_file():
        return None
    try:
        before = parse(known_config(folder, ""), STAGES)
    except EtlrunError:  # which is told of when the run is resumed
        return None
    columns, then = _held(folder)
    datasets = [replace(of, dir=None) if isinstance(of, Rows) else of for of in (before.dataset, spec.dataset)]
    same = before.columns == spec.columns and datasets[0] == datasets[1] and then.identity == known.identity
    return columns if same else None


def _held(folder: Path) -> tuple[Columns, Known]:
    """Return what the folder of a run keeps; raise `WorldError` if it can't be read."""
    path = folder / FILE
    try:
        held = json.loads(path.read_bytes())
        columns = Columns(outputs=outputs_of(held["outputs"]), shares=tuple(held["shares"].items()))
        read = dict[str, Column]()
        for name, of in held["columns"].items():
            shape, missing, distinct = tuple(of.pop("shape", ())), of.pop("missing"), of.pop("distinct")
            is_path = of.pop("is_path", False)
            feature = Feature(**of, shape=shape)
            read[name] = Column(feature=feature, missing=missing, distinct=distinct, is_path=is_path)
        known = Known(
            columns=read,
            rows=held["rows"],
            identity=held["identity"],
            held_bytes=held["held_bytes"],
            classes=tuple(held["classes"]),
            notes=tuple(held["notes"]),
            left_out=held.get("left_out", {}),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"a file that this version can't read: {type(error).__name__}: {headline(error)}"
        found = found if path.exists() else "no such file"
        expected, remedy = "the columns as the run has written them", "restore the file, or train again"
        raise WorldError(path, found, expected, remedy) from error
    return columns, known
