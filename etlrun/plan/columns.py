"""Parsing of `transform.columns`: the outputs of rows, each with its columns and steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etlrun.stages.column_steps import COLUMN_STEPS, ColumnStep
from etlrun.stages.columns import Columns, Output
from etlrun.system.errors import did_you_mean

_WHERE = Columns.path
_FORM = "a mapping such as {of: COLUMN, steps: [log1p, standardize]}"


def parsed_columns(block: object, parser: Any) -> tuple[Columns, ...]:
    """Return the step that a config's `transform.columns` describes; none for null or if there is a fault."""
    if block is None:
        return ()
    if block == "auto":
        return (Columns(outputs=()),)
    if not isinstance(block, Mapping) or not block:
        parser.add(_WHERE, str(block), "auto, or a mapping from names to columns", "")
        return ()
    outputs = [_output(str(name), of, parser) for name, of in block.items() if of != "drop"]
    return (Columns(outputs=tuple(output for output in outputs if output is not None)),)


def _output(name: str, block: object, parser: Any) -> Output | None:
    where = f"{_WHERE}.{name}"
    if not isinstance(block, Mapping) or {*block} - {"of", "steps"}:
        parser.add(where, str(block), f"{_FORM}, or drop", "")
        return None
    of, steps = block.get("of", name), block.get("steps", [])
    columns = (of,) if isinstance(of, str) else tuple(of) if isinstance(of, list) else ()
    if not columns or not isinstance(steps, list):
        parser.add(where, str(dict(block)), _FORM, "")
        return None
    found = [_step(f"{where}.steps[{place}]", step, parser) for place, step in enumerate(steps)]
    return None if None in found else Output(name=name, of=columns, steps=tuple(step for step in found if step))


def _step(where: str, block: object, parser: Any) -> ColumnStep | None:
    """Return a step: its name alone, `{name: value}`, or `{name: {parameter: value}}`."""
    name, given = (block, {}) if isinstance(block, str) else _only(block)
    kind = COLUMN_STEPS.get(name)
    if kind is None:
        known = tuple(COLUMN_STEPS)
        parser.add(where, str(block), f"one of {', '.join(known)}", did_you_mean(str(name), known))
        return None
    if isinstance(given, Mapping):
        return parser.stage(where, given, kind)  # type: ignore[no-any-return]
    if not kind.main:
        parser.add(where, str(block), f"`{name}` alone, or its parameters by name", "")
        return None
    return parser.stage(where, {kind.main: given}, kind)  # type: ignore[no-any-return]


def _only(block: object) -> tuple[str, Any]:
    """Return the only key of a mapping and its value; an empty name if it is no such mapping."""
    return next(iter(block.items())) if isinstance(block, Mapping) and len(block) == 1 else ("", {})
