"""Rounds of a sweep that differ: the seed and the splits that a config has in each, in the place of its own."""

import re
from collections.abc import Iterable, Iterator

from etlrun.stages.dataset import Dataset
from etlrun.stages.sweep import Sweep
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault
from etlrun.system.values import Block, Composed, frozen

_TWIN = 1_000_000
"""Offset of the seed of the baseline's second run in a round; larger than any number of rounds."""
_SEEDS = 2**32
_START, _END, _PERCENT = "0%", "100%", 100
_STEP = 61
"""Percent from one window to the next: by the golden ratio windows overlap least, and a hundred of them differ."""
_PART = re.compile(r"([\w-]+)(?:\[([^:\]]*):([^:\]]*)\])?")
_TIME = "time"
_HALVES = f"'{Dataset.key('split')}=train[:80%]' '{Dataset.key('eval_split')}=train[80%:]'"


@frozen
class Cut:
    """What a sweep divides into training and validation.

    Attributes:
        name: Name of a whole split.
        start: Percent of it where the validation of the config begins; None if that isn't a single part in percents.
        size: Percent of it in that validation.
        held_out: Validation split of the config that no run of the sweep reads; empty for none.
    """

    name: str
    start: int | None = None
    size: int = 0
    held_out: str = ""


def cut_of(dataset: Composed) -> Cut | None:
    """Return what is divided of a config's dataset; None if its splits are no halves of one, and no whole ones."""
    train, validation = (_parts(dataset.get(key) or "") for key in ("split", "eval_split"))
    name = train[0][0] if train else ""
    if train == [(name, _START, _END)] and name not in {of for of, _, _ in validation}:
        return Cut(name=name, held_out=dataset.get("eval_split") or "")
    if not train or not validation or {of for of, _, _ in (*train, *validation)} != {name}:
        return None
    ends, place = {start: end for _, start, end in (*train, *validation)}, _START
    for _ in (*train, *validation):
        place = ends.pop(place, "")
    if place != _END or ends:
        return None
    found = [re.fullmatch(r"(\d+)%", bound) for bound in validation[0][1:]]
    if validation[1:] or not (found[0] and found[1]):
        return Cut(name=name)
    start, end = (int(of[1]) for of in found if of)
    return Cut(name=name, start=start, size=end - start)


def _parts(split: str) -> list[tuple[str, str, str]]:
    """Return name, start and end of each part of a split, as percents where they are; nothing for other parts."""
    found = [_PART.fullmatch(part.strip()) for part in split.split("+")]
    return [(of[1], _bound(of[2], _START), _bound(of[3], _END)) for of in found if of] if all(found) else []


def _bound(text: str | None, otherwise: str) -> str:
    if text in (None, "", "0"):
        return otherwise if text != "0" else _START
    from_end = re.fullmatch(r"-(\d+)%", text or "")
    return f"{_PERCENT - int(from_end[1])}%" if from_end else str(text)


def seed_of(sweep: Sweep, seed: int, turn: int, twin: int) -> int:
    """Return the seed of a run of a config with this `seed`; `twin` is 1 for the second run of the baseline."""
    return (seed + turn + twin * _TWIN) % _SEEDS if "seed" in sweep.vary else seed


def own_of(sweep: Sweep, config: Composed, turn: int, twin: int) -> Block:
    """Return the values that a config has in one round, by their dotted keys."""
    splits = _splits(sweep, config["dataset"], turn) if sweep.cuts else {}
    seed = {Trainer.key("seed"): seed_of(sweep, config["trainer"]["seed"], turn, twin)}
    return splits | (seed if "seed" in sweep.vary else {})


def _splits(sweep: Sweep, dataset: Composed, turn: int) -> dict[str, str]:
    cut = cut_of(dataset)
    assert cut is not None  # noqa: S101 - `unfit_rounds` has refused it
    is_later = sweep.folds is not None and _by(dataset) == _TIME
    if sweep.folds is not None:
        count, first = (sweep.folds + 1, turn + 1) if is_later else (sweep.folds, turn)
        start, end = (round(_PERCENT * number / count) for number in (first, first + 1))
    else:
        start = ((cut.start or 0) + turn * _STEP) % _PERCENT
        end = start + cut.size
    behind = max(end - _PERCENT, 0)
    train = [(behind, start)] if is_later else [(behind, start), (end, _PERCENT)]
    validation = [(start, min(end, _PERCENT)), (0, behind)]
    parts = {"train": train, "validation": validation}
    return {Dataset.key_of(pipeline): _joined(cut.name, of) for pipeline, of in parts.items()}


def _joined(name: str, parts: Iterable[tuple[int, int]]) -> str:
    """Return the split of parts in percent, without those that are empty."""
    words = ((f"{start}%" * (start > 0), f"{end}%" * (end < _PERCENT)) for start, end in parts if end > start)
    return "+".join(f"{name}[{start}:{end}]" for start, end in words)


def _by(dataset: Composed) -> str:
    """Return how a column divides the rows of a dataset; empty if none does."""
    return next((key for key in ("time", "column") if key in (dataset.get("split_by") or {})), "")


def unfit_rounds(sweep: Sweep, config: Composed) -> Iterator[Fault]:
    """Yield why the splits of a config can't differ from round to round."""
    if not sweep.cuts:
        return
    dataset, cut, by = config["dataset"], cut_of(config["dataset"]), _by(config["dataset"])
    where = Sweep.key("vary" if sweep.folds is None else "folds")
    splits = ", ".join(f"{name}={dataset.get(name) or 'null'}" for name in ("split", "eval_split"))
    if by == "column":
        found, expected = "dataset.split_by.column, which names splits", "rows divided by their place or by groups"
        yield Fault(where, found, expected, "set 'dataset.split_by={group: COLUMN}', or null")
    elif cut is not None and cut.name in _named(dataset):
        expected = f"sets of other splits than {cut.name}, since rounds train on each part of it"
        yield Fault(where, f"dataset.eval_splits of {cut.name}", expected, "leave these sets out")
    elif cut is None:
        expected = "a whole split, or two parts that make up one"
        yield Fault(where, splits, expected, f"set {_HALVES}")
    elif sweep.folds is None and by == _TIME:
        expected = "validation of later rows than those of the training"
        yield Fault(
            where, "split, with dataset.split_by.time", expected, "set sweep.folds=5: folds validate on later rows"
        )
    elif sweep.folds is None and cut.start is None:
        expected = "a validation on one part of a split, in percent"
        yield Fault(where, splits, expected, f"set {_HALVES}, or sweep.folds=5")


def _named(dataset: Composed) -> set[str]:
    """Return the splits that named validation sets are parts of."""
    splits = [of for of in (dataset.get("eval_splits") or {}).values() if isinstance(of, str)]
    return {part.partition("[")[0].strip() for split in splits for part in split.split("+")}


def told_of_time(sweep: Sweep, config: Composed) -> Iterator[str]:
    """Yield what intervals over folds by time don't hold."""
    if sweep.folds is not None and _by(config["dataset"]) == _TIME:
        yield "by time, intervals over folds don't hold for rows to come: later rows differ, and training sets grow"


def told(sweep: Sweep, config: Composed) -> Iterator[str]:
    """Yield what rounds of a config have of their own, a sentence each."""
    dataset = config["dataset"]
    cut = cut_of(dataset) if sweep.cuts else None
    if cut is not None and sweep.folds is not None:
        others = "the earlier rows" if _by(dataset) == _TIME else "the others"
        yield f"{sweep.folds} of {cut.name}: each round validates on one and trains on {others}"
    elif cut is not None:
        yield f"each round validates on another {cut.size} % of {cut.name}, and trains on the rest"
    if cut is not None and cut.held_out:
        yield f"{cut.held_out} is held out: no run reads it"
    if cut is not None and dataset.get("order") == "file" and not dataset.get("split_by"):
        yield f"the rows of {cut.name} are in the order of the file (dataset.order): its parts are no samples of it"
    if "seed" in sweep.vary:
        yield "each round trains with its own seed"
    yield from told_of_time(sweep, config)
    if sweep.cuts:
        yield "the baseline runs once in each round: the noise of the machine isn't measured"
