"""Diagnosis of corrupt records: file, record and reason; classes of the examples of a split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etlrun.remote.copies import named_by_url
from etlrun.sources.base import Source, Split
from etlrun.sources.content import Shard
from etlrun.sources.usable import CONVERT, Problem, problem
from etlrun.stages.dataset import Dataset
from etlrun.stages.lazy import np, npt, tf
from etlrun.stages.load import TO_SKIP
from etlrun.system.errors import EtlrunError, WorldError, headline, printable


@dataclass(frozen=True, kw_only=True)
class CorruptRecord:
    """A record that can't be used.

    Attributes:
        path: Path of the shard.
        record: Number of the record in the shard, from 0; None if it is the whole file.
        reason: Description of the fault.
        expected: What would be valid.
        remedy: What to do to keep it.
        lost: Number of records that can't be read because of it, including itself.
    """

    path: str
    record: int | None
    reason: str
    expected: str
    remedy: str
    lost: int = 1

    @property
    def where(self) -> str:
        """Path, and record if the file has several."""
        path = printable(self.path)
        return path if self.record is None else f"{path}, record {self.record}"

    def error(self, also: str = "", alike: str = "") -> WorldError:
        """Return the error that ends a run; `also` is what it has to set to skip records, beside `on_corrupt`.

        `alike` says that none would be left.
        """
        also = also and f" and {also}"
        skip = f", or set dataset.on_corrupt=skip{also} to skip and count such records"
        return WorldError(self.where, self.reason, self.expected, f"{self.remedy}{alike or skip}")


@dataclass
class Losses:
    """Examples that passes lose to corrupt records. All passes lose the same: any other missing example is an error.

    Attributes:
        records: The corrupt records; None until a pass has missing examples.
        failure: Error of a pass that has lost more than these, or of a shard that can't be fetched; None without one.
    """

    records: list[CorruptRecord] | None = None
    failure: EtlrunError | None = None

    def explain(self, source: Source, split: Split, kept: int) -> None:
        """Check a pass that ended with `kept` examples; raise `EtlrunError` if more than corrupt ones are missing."""
        if self.failure is not None:
            raise self.failure
        if kept + self._lost == split.num_examples:
            return
        try:
            self.records = list(corrupt_records(source, split))
            if kept + self._lost != split.num_examples:
                raise _unexplained(split, kept, self._lost)
        except WorldError as error:
            self.failure = error
            raise

    @property
    def _lost(self) -> int:
        return sum(record.lost for record in self.records or ())


def _unexplained(split: Split, kept: int, lost: int) -> WorldError:
    return WorldError(
        Dataset.key("on_corrupt"),
        f"{kept} examples in a pass over '{split.name}', which has {split.num_examples}, {lost} of them corrupt",
        f"{split.num_examples - lost}: only corrupt records may be missing",
        "check the storage for errors; dataset.on_corrupt=raise reports examples that a step can't process",
    )


def reason_of(error: Exception, path: str) -> str:
    """Return the system's reason why TensorFlow could not open or read that file; empty for any other error."""
    found = re.search(re.escape(path) + r"; ([^\[\n]+)", str(error))
    return found[1].strip() if found else ""


@named_by_url()
def raise_cause(error: Exception, source: Source, read: Sequence[tuple[Split, Losses]], also: str = "") -> None:
    """Raise the `WorldError` of an unreadable file or a corrupt record; return if `error` has another cause.

    `read` are the splits that were being read, and `also` is what the run has to set to skip records.
    """
    for split, losses in read:
        if losses.failure is not None:
            raise losses.failure from error
        for path in (path for path in split.paths if path in str(error)):
            if reason := reason_of(error, path):
                raise source.unreadable(path, reason) from error
    if not isinstance(error, tf.errors.DataLossError | tf.errors.InvalidArgumentError):
        return
    if source.dataset.on_corrupt == "skip":
        return
    for split, _ in read:
        raise_first(error, source, split, also)


def raise_first(error: Exception | None, source: Source, split: Split, also: str = "") -> None:
    """Raise the `WorldError` of the first corrupt record of a split, if there is one, because of `error`.

    Skipping is offered, with what has `also` to be set, only if an example is left then.
    """
    for corrupt in corrupt_records(source, split):
        is_any_left = any(record is None for shard in split.shards for record in _each(source, split, shard))
        alike = f"; so are all {split.num_examples:,} examples of '{split.name}', and skipping would leave none"
        raise corrupt.error(also, "" if is_any_left else alike) from error


def corrupt_records(source: Source, split: Split) -> Iterator[CorruptRecord]:
    """Yield the corrupt records of `split`, in order. Reads and decodes all records.

    Raises:
        WorldError: A file can't be opened or read.
    """
    for shard in split.shards:
        yield from in_shard(source, split, shard)


def in_shard(source: Source, split: Split, shard: Shard) -> Iterator[CorruptRecord]:
    """Yield the corrupt records of a shard of `split`, or of a part of one; raises as `corrupt_records` does."""
    yield from (record for record in _each(source, split, shard) if record is not None)


def _each(source: Source, split: Split, shard: Shard) -> Iterator[CorruptRecord | None]:
    """Yield each corrupt record of a shard, and None in the place of another one."""
    parse = source.parser()
    for number, record in records_of(source, split, shard):
        if isinstance(record, CorruptRecord):
            yield record
            return
        path, place = split.place(shard, number)
        try:
            found = split.refused(number) or _problem(source, parse, record)
        except tf.errors.OpError as error:
            raise source.unreadable(path, reason_of(error, path) or headline(error)) from error
        if found is None:
            yield None
            continue
        remedy = source.conversion if found.expected == CONVERT else source.repair
        yield CorruptRecord(path=path, record=place, reason=found.reason, expected=found.expected, remedy=remedy)


def records_of(source: Source, split: Split, shard: Shard) -> Iterator[tuple[int, tf.Tensor | CorruptRecord]]:
    """Yield the records of a shard (string scalars) with their numbers; where it is damaged, that in place of the rest.

    Raises:
        WorldError: The file can't be opened or read.
    """
    records = iter(split.read(shard.path, shard.skip, shard.take))
    for number in range(shard.skip, shard.skip + shard.take):
        try:
            record = next(records)
        except (tf.errors.DataLossError, StopIteration) as error:
            reason = "the end of the file" if isinstance(error, StopIteration) else headline(error)
            damage = CorruptRecord(
                path=split.place(shard, number)[0],
                record=number,
                reason=reason,
                expected=f"{shard.skip + shard.take} complete records: the shard is truncated or damaged",
                remedy=source.repair,
                lost=shard.skip + shard.take - number,
            )
            yield number, damage
            return
        except tf.errors.OpError as error:
            raise source.unreadable(shard.path, reason_of(error, shard.path) or headline(error)) from error
        yield number, record


def _problem(source: Source, parse: object, record: tf.Tensor) -> Problem | None:
    try:
        example = parse(record)  # type: ignore[operator]
    except tf.errors.InvalidArgumentError as error:
        return Problem(
            headline(error) if record.numpy() else "a record of zero bytes",
            f"an example with the features {' and '.join(source.dataset.keys.values())}",
        )
    flow = source.dataset.examples
    for name, count in source.limits.items():
        values = np.atleast_1d(example[name].numpy())
        for value in values[(values < 0) | (values >= count)]:
            return Problem(f"{name} {value}", f"a {name} from 0 to {count - 1}")
    if flow.weight and not 0 <= (weight := float(example[flow.weight])) < np.inf:
        return Problem(f"{flow.weight} {weight:g}", "a weight of at least 0")
    for name in (name for name, feature in flow.features.items() if feature.format == "image"):
        if found := problem(example[name].numpy()):
            return found
    return None


def labels_of(source: Source, split: Split, *, by_number: bool) -> npt.NDArray[np.int64]:
    """Return the class of each example in the order of the data, in [0, num_classes); images are not decoded.

    With `dataset.on_corrupt=skip`, records without such a class are left out. `by_number` says whether examples are
    read by number, which can't skip any.

    Raises:
        WorldError: A record is corrupt, or a file can't be read.
    """
    try:
        found = source.labels_of(split)
    except tf.errors.OpError as error:
        raise_first(error, source, split, TO_SKIP if by_number else "")
        raise
    is_class = (found >= 0) & (found < (source.num_classes or 0))
    if not is_class.all() and source.dataset.on_corrupt != "skip":
        raise_first(None, source, split, TO_SKIP if by_number else "")
    return found[is_class]


def counts_of(source: Source, split: Split, *, by_number: bool) -> dict[str, int]:
    """Return the number of examples of each class by its name, in the order of the classes; see `labels_of`."""
    classes = source.num_classes or 0
    counts = np.bincount(labels_of(source, split, by_number=by_number), minlength=classes)
    return dict(zip(source.names_of_classes or (), map(int, counts), strict=True))
