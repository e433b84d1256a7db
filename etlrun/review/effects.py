"""Effects of a change of plan beside its values: which caches it rebuilds, and what a short pass of both reads."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from etlrun.graph.identity import planned
from etlrun.planning.plan import Plan, at_cache
from etlrun.review.difference import DATASET, Comparison, Difference, first_stage
from etlrun.sources.base import on_disk
from etlrun.stages.base import DATA
from etlrun.stages.cache import cache_bytes
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import counted
from etlrun.system.machine import megabytes, rounded
from etlrun.system.values import frozen, grouped

_SHOWN = 16
"""Hex digits of a digest in a sentence."""
CONTRADICTION = "contradiction: "
"""Beginning of the sentence on a fact that the comparison denies."""
VALID, REBUILT, FIRST, UNUSED, EACH_RUN, SHARED = (
    "stays valid", "will be rebuilt", "will be built by the first run", "is no longer read", "is filled by each run",
    "is shared",
)  # fmt: skip
_DEVICE, _AUTO = Trainer.key("device"), "auto"


@frozen
class ReadExamples:
    """What a pass over a split has read on one side.

    Attributes:
        hashes: Hash of each example, in the order of the pass.
        split_examples: Number of examples of the whole split.
        is_ordered: Whether their order is the same in each run.
        reason: Why nothing was read, or what was read says nothing; empty otherwise.
        unread: Whether the data were `absent`, or there and `unreadable`; empty otherwise.
    """

    hashes: tuple[bytes, ...] = ()
    split_examples: int = 0
    is_ordered: bool = True
    reason: str = ""
    unread: Literal["", "absent", "unreadable"] = ""

    @property
    def digest(self) -> str:
        """Digest of the examples, independent of their order; empty if there is a `reason` for none."""
        from etlrun.measure.digest import digest_of  # imports NumPy

        return "" if self.reason else digest_of(self.hashes)

    @property
    def amount(self) -> str:
        """How many examples were read, of how many, such as `2 of 3 examples`."""
        count = len(self.hashes)
        whole = f" of {self.split_examples:,}" * (count != self.split_examples)
        return f"{count:,}{whole} example{'s' * (self.split_examples != 1)}"


ABSENT = ReadExamples(reason="the side doesn't have the pipeline")
Plans = tuple["Plan | None", "Plan | None"]
Sides = tuple[ReadExamples, ReadExamples]
"""What was read before and after a change; `ABSENT` on a side that doesn't have the pipeline."""


@frozen
class Facts:
    """What a short pass of both sides has read.

    Attributes:
        lines: The facts, a sentence each.
        is_same: Whether both sides have read the same examples, in any order; None if that is unknown.
        is_ordered: Whether they were in the same order; None if that is unknown.
        digests: Digest of each side, by pipeline; empty for a side that was not read.
        contradicts: Whether this is not what the comparison of the plans says.
        unread: Why data were not read, which are absent or can't be; empty if they were.
        is_unreadable: Whether data that are there can't be read.
    """

    lines: list[str]
    is_same: bool | None
    is_ordered: bool | None
    digests: dict[str, tuple[str, str]]
    contradicts: bool = False
    unread: str = ""
    is_unreadable: bool = False


def facts_of(comparison: Comparison, plans: Plans, read: Mapping[str, Sides], *, by_own_code: bool) -> Facts:
    """Return the facts on what was read of both plans, by pipeline, beside what their comparison says.

    Runs are not read `by_own_code`, but with the packages that are installed now.
    """
    compared = {name: sides for name, sides in read.items() if all(of.digest for of in sides)}
    same = {name: _is_same(*sides) for name, sides in compared.items()}
    ordered = {name: _is_ordered(*sides) for name, sides in compared.items()}
    denied = list[str]()
    for name in () if comparison.is_unsure or comparison.doubts else compared:
        if not same[name] and not _reaching(name, comparison):
            denied.append(f"the examples of {name} differ, though the comparison says they do not")
        elif ordered[name] is False and not comparison.is_reordered and not _reaching(name, comparison):
            denied.append(f"the order of {name} differs, though the comparison says it does not")
    is_known = bool(compared) and len(compared) == len(read)
    return Facts(
        lines=[
            *_lines(comparison, plans, read),
            *["nothing is confirmed"] * (bool(read) and not compared and None not in plans),
            *_notes(comparison, plans, by_own_code=by_own_code),
            *(f"{CONTRADICTION}{text}" for text in denied),
        ],
        is_same=False if False in same.values() else True if is_known else None,
        is_ordered=False if False in ordered.values() else True if is_known and None not in ordered.values() else None,
        digests={name: (old.digest, new.digest) for name, (old, new) in read.items()},
        contradicts=bool(denied),
        unread="; ".join(dict.fromkeys(of.reason for sides in read.values() for of in sides if of.unread)),
        is_unreadable=any(of.unread == "unreadable" for sides in read.values() for of in sides),
    )


def repeatable(read: Mapping[str, Sides], again: Mapping[str, Sides]) -> dict[str, Sides]:
    """Return what was read, without pipelines of which a side has read other examples when it was read `again`."""
    found = dict(read)
    for name, sides in read.items():
        passes = () if ABSENT in sides else zip(sides, again[name], strict=True)
        if any(not _is_same(*of) or _is_ordered(*of) is False for of in passes):
            reason = "a second pass over the same config has read others: a step is random beyond its seed"
            old, new = sides
            found[name] = replace(old, reason=reason), replace(new, reason=reason)
    return found


def _is_same(old: ReadExamples, new: ReadExamples) -> bool:
    return Counter(old.hashes) == Counter(new.hashes)


def _is_ordered(old: ReadExamples, new: ReadExamples) -> bool | None:
    return old.hashes == new.hashes if old.is_ordered and new.is_ordered else None


def _lines(comparison: Comparison, plans: Plans, read: Mapping[str, Sides]) -> Iterator[str]:
    """Yield the sentences on what was read, and why the rest was not, pipelines with the same reason together."""
    unread = list[tuple[tuple[str, str], str]]()
    for name, (old, new) in read.items():
        if old.digest and new.digest:
            yield _compared(name, old, new, comparison, plans)
            continue
        sides = [(side, of) for side, of in (("before", old), ("after", new)) if of is not ABSENT]
        alone = ", only {} the change" * (None not in plans)
        yield from (
            f"read: {of.amount} of {name}{alone.format(side)} ({_short(of)})" for side, of in sides if of.digest
        )
        reasons = [f" {side} the change, since {of.reason}" for side, of in sides if of.reason]
        if old.reason == new.reason:
            reasons = [f", since {old.reason}"]
        unread += [(("compared" if old.hashes and old.reason else "read", reason), name) for reason in reasons]
    for (verb, reason), names in grouped(unread).items():
        yield f"not {verb}: {' and '.join(names)}{reason}"


def _compared(name: str, old: ReadExamples, new: ReadExamples, comparison: Comparison, plans: Plans) -> str:
    """Return the sentence on a pipeline of which both sides were read."""
    amount = old.amount if old.amount == new.amount else f"{old.amount.rpartition(' ')[0]} -> {new.amount}"
    begin, count, reaching = f"read: {amount} of {name}, ", len(new.hashes), _reaching(name, comparison)
    if _is_same(old, new):
        is_ordered = _is_ordered(old, new)
        order = {True: "the same order", False: "another order", None: "an order that is not fixed"}[is_ordered]
        may_differ = count < new.split_examples and (reaching or (comparison.is_reordered and is_ordered))
        return f"{begin}the same in {order} ({_short(new)}){'; the others may differ' * bool(may_differ)}"
    shared = (Counter(old.hashes) & Counter(new.hashes)).total()
    digests, (before, after) = f"({_short(old)} -> {_short(new)})", plans
    if old.amount != new.amount:
        return f"{begin}{shared:,} of them the same {digests}"
    since = f" from {first_stage(before, after, reaching)} on" if before and after and reaching else ""
    return f"{begin}{f'{count - shared:,}' if shared else 'all'} of which differ{since} {digests}"


def _reaching(name: str, comparison: Comparison) -> list[Difference]:
    return [item for item in comparison.differences if item.kind == DATA and name in (item.pipelines or (name,))]


def _short(of: ReadExamples) -> str:
    count, _, digest = of.digest.partition(":")
    return f"{count}:{digest[:_SHOWN]}…"


def _notes(comparison: Comparison, plans: Plans, *, by_own_code: bool) -> Iterator[str]:
    """Yield what differs and is not part of what is read."""
    old, new = ({step.stage.path for step in plan.by_model} if plan is not None else set() for plan in plans)
    paths = [item.path for item in comparison.differences if item.kind == DATA]
    applied = [step for step in sorted(old & new) if any(path.startswith(f"{step}.") for path in paths)]
    if applied:
        yield f"not read: what {', '.join(applied)} changes, which the model applies"
    if not by_own_code and any(path.startswith("code of ") for path in paths):
        yield "not read: the code of the other side; both sides ran with the packages that are installed here"
    if not by_own_code and (comparison.is_unsure or comparison.since == DATASET):
        yield "not read: the files at the time of a run; its side was read from the files of now"


@frozen
class CacheChange:
    """State of a cache after a change of plan.

    Attributes:
        pipeline: `train` or `validation`.
        target: `cache.disk` or `cache.memory`, and the point at which it caches.
        state: One of `VALID`, `REBUILT`, `FIRST`, `UNUSED`, `EACH_RUN`, `SHARED`.
        because: For `REBUILT`, the values that differ before the cache.
        provided: For `VALID`, conditions that the configs do not determine; for `SHARED`, with which experiment.
        size_bytes: Size of the new cache in bytes; None if it is unknown.
        size: The size as text; if it is unknown, what is known of it.
    """

    pipeline: str
    target: str
    state: str
    because: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    size_bytes: int | None = None
    size: str = ""

    @property
    def is_filled(self) -> bool:
        """Whether the change fills a cache on disk."""
        return self.state in {REBUILT, FIRST}

    def __str__(self) -> str:
        because = f", since {', '.join(self.because)} differ{'s' * (len(self.because) == 1)}" * bool(self.because)
        provided = f" {' and '.join(self.provided)}" * bool(self.provided)
        return f"{self.target} {self.state}{because}{provided}{f' ({self.size})' * bool(self.size)}"


def caches(old: Plan | None, new: Plan) -> tuple[CacheChange, ...]:
    """Return the state of the caches of all pipelines, compared by all that they rest on; without `old`, as new ones.

    A memory cache with the same content is left out.
    """
    names = {**new.pipelines, **({} if old is None else old.pipelines)}
    return tuple(kept for name in names for kept in _kept(old, new, name))


def held_by(plan: Plan, name: str) -> str:
    """Return the cache on disk of a pipeline, by its folder and all that it holds; empty for none."""
    cache = at_cache(plan.pipelines.get(name, ()))[1]
    if cache is None or not cache.outlives_run:
        return ""
    return f"{cache.dir} {cache.path} {cache.codec} {planned(plan, name)!r}"


def filled_line(kept: Sequence[CacheChange]) -> str:
    """Return the sentence on the caches on disk that are filled: their size, and what becomes of the old ones."""
    sizes = [of.size_bytes for of in kept if of.is_filled]
    told, known = f"{counted(len(sizes), 'cache')} on disk", [size for size in sizes if size is not None]
    told = f"{rounded(sum(known))} in {told}" if len(known) == len(sizes) else f"{told} of unknown size"
    if not any(of.state == REBUILT for of in kept):
        return f"fills {told}"
    return f"refills {told}; what was there stays until etlrun cache gc removes it"


def _kept(old: Plan | None, new: Plan, name: str) -> Iterator[CacheChange]:
    was, now = (None if plan is None else at_cache(plan.pipelines.get(name, ()))[1] for plan in (old, new))
    if now is None:
        if was and was.outlives_run:
            yield CacheChange(pipeline=name, target=f"{was.path} at {was.at}", state=UNUSED)
        return
    before, after = {} if old is None or name not in old.pipelines else planned(old, name), planned(new, name)
    devices = {before.get(_DEVICE), after.get(_DEVICE)}
    unsure = {_DEVICE} if _AUTO in devices else set()
    differs = tuple(key for key in sorted((before | after).keys() - unsure) if before.get(key) != after.get(key))
    because, provided = tuple[str, ...](), list[str]()
    if not now.outlives_run:
        if was is not None and not was.outlives_run and not differs:
            return  # each run fills it with the same content as before
        state = EACH_RUN
    elif was is None or not was.outlives_run or was.dir != now.dir:
        state = FIRST
    elif differs:
        state = REBUILT  # of stages that one side lacks the steps tell
        because = tuple(of for of in differs if of != now.key("at") and of in before and of in after) or differs
    else:
        state = VALID
        if old is not None and len({getattr(of.spec.dataset, "data_dir", None) for of in (old, new)}) > 1:
            provided.append("if dataset.data_dir holds the same files")
        for device in devices - {_AUTO, None} if unsure else ():
            provided.append(f"if {_DEVICE}={_AUTO} selects {'a GPU' if device == 'gpu' else 'the CPU'}")
    size_bytes, size = size_of(new, name)
    yield CacheChange(
        pipeline=name,
        target=f"{now.path} at {now.at}",
        state=state,
        because=because,
        provided=tuple(provided),
        size_bytes=size_bytes,
        size="" if state == VALID else size,
    )


def cached_bytes(plan: Plan, name: str, count: int) -> int | None:
    """Return the bytes of so many examples in the cache of a pipeline; None if they depend on the images."""
    before, _, _ = at_cache(plan.pipelines[name])
    flow, dataset = before[-1].gives, plan.spec.dataset
    is_encoded = plan.spec.cache.quality is None and any(of.format == "image" for of in flow.features.values())
    known = on_disk(dataset.read_by(name)).examples(dataset.splits.get(name, "")) if is_encoded else None
    return cache_bytes(flow, count, None if known is None else int(known.encoded_bytes))


def size_of(plan: Plan, name: str) -> tuple[int | None, str]:
    """Return the size of the cache of a pipeline: in bytes (None if unknown) and as text."""
    dataset = plan.spec.dataset
    known = on_disk(dataset.read_by(name)).examples(dataset.splits.get(name, ""))
    size_bytes = cached_bytes(plan, name, 1 if known is None else known.count)
    if size_bytes is None:
        return None, "its size depends on the images"
    if known is None:
        return None, f"{size_bytes:,} bytes per example; the dataset is not prepared here"
    return size_bytes, f"{megabytes(size_bytes)} of {counted(known.count, 'example')}"
