"""Parsing of `transform.columns`: the outputs of a dataset, each with its columns and steps."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from etlrun.stages.column_categories import Lookup
from etlrun.stages.column_numbers import ColumnStep
from etlrun.stages.column_text import Ngrams, Tokenize
from etlrun.stages.columns import COLUMN_STEPS, Columns, Output, with_indicators
from etlrun.stages.step import fields_of
from etlrun.system.errors import Fault, did_you_mean
from etlrun.system.values import Block

_WHERE = Columns.path
_KEYS = ("of", "steps")
_FORM = "a mapping such as {of: COLUMN, steps: [log1p, standardize]}"
READ = "read"
"""First step on an image whose column has the path of its file."""
_OF_IMAGES: Mapping[str, Block] = {"resize": {"method": "bilinear", "antialias": False, "dtype": "uint8"}}
"""Parameters of steps on images that neither the column nor `transform` says."""


def parsed_columns(block: object, parser: Any) -> tuple[Columns, ...]:
    """Return the step that a config's `transform.columns` describes; none if there is a fault."""
    if block == "auto":
        return (Columns(outputs=(), is_auto=True),)
    if not isinstance(block, Mapping) or not block:
        parser.add(_WHERE, str(block), "auto, or a mapping from names to columns")
        return ()
    dropped = tuple(str(name) for name, of in block.items() if of == "drop")
    found = [_output(str(name), of, parser) for name, of in block.items() if of != "drop"]
    outputs = with_indicators([output for output in found if output is not None])
    names = [output.name for output in outputs]
    for name in dict.fromkeys(name for place, name in enumerate(names) if name in names[:place]):
        remedy = "rename it: `fill` adds an indicator of this name"
        parser.add(f"{_WHERE}.{name}", "another output of that name", "each name once", remedy)
    return (Columns(outputs=outputs, dropped=dropped),)


def _output(name: str, block: object, parser: Any) -> Output | None:
    where = f"{_WHERE}.{name}"
    if not isinstance(block, Mapping):
        parser.add(where, str(block), f"{_FORM}, or drop")
        return None
    for key in (key for key in block if key not in _KEYS):
        remedy = did_you_mean(str(key), _KEYS, otherwise="remove it", cutoff=0.8)
        parser.add(f"{where}.{key}", "an unknown key", "one of the keys of, steps", remedy)
    of, steps = block.get("of", name), block.get("steps", [])
    columns = (of,) if isinstance(of, str) else tuple(map(str, of)) if isinstance(of, list) else ()
    if not columns or not isinstance(steps, list):
        parser.add(where, f"of: {of}, steps: {steps}", _FORM)
        return None
    names = [str(next(iter(step), "") if isinstance(step, Mapping) else step) for step in steps]
    if any(of == READ or of in parser.stages["transform"] for of in names):
        return _image(name, columns, names, steps, parser)
    found = [_step(f"{where}.steps[{place}]", step, parser) for place, step in enumerate(steps)]
    for place, step in enumerate(found):
        takes_several, has_several = step is not None and step.takes > 1, not place and len(columns) > 1
        if step is None or takes_several == has_several:
            continue
        expected, remedy = "several columns before it", "make it the first step, and `of` a list of columns"
        if has_several:
            several = [name for name, kind in COLUMN_STEPS.items() if kind.takes > 1]
            expected, remedy = f"a step that takes several columns: {', '.join(several)}", "name one column"
        parser.add(f"{where}.steps[{place}]", step.name, expected, remedy)
    if len(columns) > 1 and not found:
        parser.add(where, ", ".join(columns), "one column, or a first step that takes several", "add {cross: 1000}")
    return None if None in found else Output(name=name, of=columns, steps=with_pieces([step for step in found if step]))


def _image(name: str, of: tuple[str, ...], names: Sequence[str], steps: Sequence[Any], parser: Any) -> Output | None:
    """Return the output of an image, whose steps are those of `transform.steps`, behind `read` if it is in a file."""
    where, known, found = f"{_WHERE}.{name}", parser.stages["transform"], list[Any]()
    if of[1:]:
        parser.add(f"{where}.of", ", ".join(of), "one column, of an image", "make an output of each")
    image: Any = "image file" if READ in names else "image"
    for place, (step, block) in enumerate(zip(names, steps, strict=True)):
        at = f"{where}.steps[{place}]"
        if _are_beside(at, block, parser):
            continue
        given = next(iter(block.values()), None) if isinstance(block, Mapping) else Block()
        if step == READ and not place and not given:
            continue
        if step in names[:place] and step in known:
            parser.add(at, f"{step} again", "each step once", "remove one of the two")
            continue
        if step not in known:
            listed = (READ, *known)
            remedy = "make it the first step, without parameters" if step == READ else did_you_mean(step, listed)
            parser.add(at, step, f"one of {', '.join(listed)}, as for images", remedy)
            continue
        kind = known[step].on(name)
        if not isinstance(given, Mapping):
            given = {of.name: given for of in fields_of(kind)[:1]}
        set_before = {**_OF_IMAGES.get(step, {}), **(parser.config["transform"].get(step) or {})}
        found.append(parser.stage(at, {**set_before, **given}, kind))
    return None if None in found else Output(name=name, of=of, image=image, of_image=tuple(found))


def with_pieces(steps: Sequence[ColumnStep]) -> tuple[ColumnStep, ...]:
    """Return steps in which a lookup behind a tokenizer by pieces has its vocabulary, unless it says another one."""
    found, file = list[ColumnStep](), None
    for step in steps:
        is_open = type(step) is Lookup and step == Lookup(oov=step.oov)
        found.append(step.replace(file=file) if is_open and file else step)
        file = step.file if isinstance(step, Tokenize) else None if isinstance(step, Ngrams) else file
    return tuple(found)


def _step(where: str, block: object, parser: Any) -> ColumnStep | None:
    """Return a step: its name alone, `{name: value}`, or `{name: {parameter: value}}`."""
    name, given = block if isinstance(block, str) else "", Block()
    if isinstance(block, Mapping) and len(block) == 1:
        ((name, given),) = block.items()
    kind = COLUMN_STEPS.get(str(name))
    if _are_beside(where, block, parser):
        return None
    if kind is None:
        known = tuple(COLUMN_STEPS)
        parser.add(where, str(name or block), f"one of {', '.join(known)}", did_you_mean(str(name), known))
        return None
    if not isinstance(given, Mapping):
        if not kind.main:
            parser.add(where, f"{name}: {given}", f"`{name}` alone, or its parameters by name")
            return None
        given = {kind.main: given}
    count = len(parser.faults)
    step: ColumnStep | None = parser.stage(where, given, kind)
    return step if len(parser.faults) == count else None


def _are_beside(where: str, block: object, parser: Any) -> bool:
    """Return whether there are several steps in the place of one, which is a fault."""
    if not isinstance(block, Mapping) or len(block) <= 1:
        return False
    remedy = "write each step by itself, with its parameters in braces: {STEP: {PARAMETER: VALUE}}"
    parser.add(where, f"{', '.join(map(str, block))} beside each other", "one step", remedy)
    return True


def misnamed(
    columns: Columns,
    names: Collection[str],
    targets: Sequence[str],
    weight: str = "",
    excluded: Collection[str] = (),
) -> Iterator[Fault]:
    """Yield the faults of `columns` beside these names: unknown and excluded ones, targets and the weight."""
    predicted, targets = targets, (*targets, weight)
    inputs = [name for name in names if name not in targets]
    known, above = dict.fromkeys(inputs), set[str]()
    for output in columns.outputs:
        if output.name in targets:
            yield _of_target(f"{_WHERE}.{output.name}", output.name, predicted)
            continue
        for name in output.of:
            if name in targets:
                yield _of_target(f"{_WHERE}.{output.name}.of", name, predicted)
            elif name not in known and output.indicator_of not in columns.output_names:
                yield unknown_column(f"{_WHERE}.{output.name}.of", name, known, ", or an output above it", excluded)
            elif len(output.of) > 1 and name in above and name in inputs:
                found, expected = f"{name}, which is a column and an output above it", "the name of one of them"
                remedy = f"give the output {name} another name, such as {name}_0, and `of: {name}`"
                yield Fault(f"{_WHERE}.{output.name}.of", found, expected, remedy)
        known[output.name] = None
        above.add(output.name)
    for name in columns.dropped:
        if name in targets:
            yield _of_target(f"{_WHERE}.{name}", name, predicted)
        elif name not in names:
            yield unknown_column(f"{_WHERE}.{name}", name, inputs)


def _of_target(where: str, name: str, predicted: Sequence[str]) -> Fault:
    remedy = f"leave it out: dataset.{'target' if name in predicted else 'weight'} declares it"
    what = "the weight" if name not in predicted else "the target" if len(predicted) == 1 else "a target"
    return Fault(where, f"{name}, which is {what}", "inputs alone", remedy)


def unknown_column(
    where: str, name: str, known: Collection[str], others: str = "", excluded: Collection[str] = ()
) -> Fault:
    """Return the fault of a name that no column has, or one that is excluded."""
    if name in excluded:
        return Fault(where, f"{name}, which dataset.exclude names", "inputs alone", "remove one of the two")
    expected = f"one of the columns {', '.join(known)}{others}"
    return Fault(where, name, expected, did_you_mean(name, known, otherwise="check its name", cutoff=0.7))
