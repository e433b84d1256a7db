"""Sources of examples, as pipelines read them: a dataset with splits, whose records a parser turns into features."""

from __future__ import annotations

import errno
import importlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from itertools import starmap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from etlrun.stages.dataset import Dataset
from etlrun.stages.lazy import np, npt, tf
from etlrun.system.errors import WorldError, counted, did_you_mean, first_few, likeliest, placed
from etlrun.system.values import frozen, grouped

if TYPE_CHECKING:
    from etlrun.cache.keeper import Identified
    from etlrun.remote.copies import Copies
    from etlrun.remote.objects import Object
    from etlrun.sources.content import Shard


_MOST_NAMED = 10
_VALIDATION = ("val", "dev")
"""Beginnings of the names of splits for validation, in lower case."""
Slice = tuple[str, int, int]
"""The name of a split, the number of the first example, and the number behind the last one."""


def slices(split: str, counts: dict[str, int]) -> list[tuple[str, int, int]]:
    """Return the parts of `split`, of whole splits that have `counts` examples; empty if it isn't a sum of slices.

    Percentages are rounded to the nearest example, as TFDS does.
    """
    found = []
    for part in split.split("+"):
        match = re.fullmatch(r"(\w+)(?:\[(-?\d+%?)?:(-?\d+%?)?\])?", part.strip())
        if match is None or match[1] not in counts:
            return []
        whole, bounds = counts[match[1]], []
        for text, otherwise in ((match[2], "0"), (match[3], "100%")):
            bound = text or otherwise
            number = round(int(bound[:-1]) * whole / 100) if bound.endswith("%") else int(bound)
            bounds.append(min(max(number + whole if number < 0 else number, 0), whole))
        found.append((match[1], bounds[0], max(bounds)))
    return found


def in_files(counts: Mapping[str, int], first: int, end: int) -> list[tuple[str, int, int]]:
    """Return the files, of these counts, that hold the records from `first` to before `end`.

    Each with the records to skip and to take.
    """
    found, before = [], 0
    for path, count in counts.items():
        skip, until = max(first - before, 0), min(end - before, count)
        if until > skip:
            found.append((path, skip, until - skip))
        before += count
    return found


def versions_in(homes: Iterable[str]) -> dict[str, str]:
    """Return those of the paths or URLs whose names are versions, by these, the newest last."""
    named = {home.rpartition("/")[2]: home for home in homes}
    versions = [name for name in named if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    return {name: named[name] for name in sorted(versions, key=lambda name: [*map(int, name.split("."))])}


def note_of_unused(dataset: Dataset, counts: Mapping[str, int]) -> str | None:
    """Return the note on a split for validation that is there while a part of the training split validates.

    `counts` are the examples of each split; None if there is nothing to note.
    """
    train, validation = (
        {name for name, _, _ in slices(split, {**counts})} for split in (dataset.split, dataset.eval_split or "")
    )
    of_sets = {name for of in dataset.sets for name, _, _ in slices(dataset.splits[of], {**counts})}
    named = [name for name, count in counts.items() if count and name.lower().startswith(_VALIDATION)]
    unused = [name for name in named if name not in of_sets]
    if not unused or not validation or not validation <= train or {*unused} & train:
        return None
    return (
        f"The split {unused[0]} ({counted(counts[unused[0]], 'example')}) is not used: the validation reads "
        f"{dataset.eval_split}. To use it, set dataset.split={min(train)} dataset.eval_split={unused[0]}."
    )


def splits_of(source: Source, *, with_validation: bool = True) -> dict[str, Split]:
    """Return what each pipeline reads: `train` and, with validation, `validation` and the named validation sets.

    Raises `WorldError` if a split is missing or empty, or if other files have other classes.
    """
    dataset = source.dataset
    splits = dataset.splits if with_validation else {"train": dataset.split}
    sources = dict.fromkeys(splits, source)
    for name in splits:
        if (of := dataset.read_by(name)) is not dataset:
            with placed(dataset.key_of(name)):
                sources[name] = open_source(of)
    for name, other in sources.items():
        classes, found = source.names_of_classes, other.names_of_classes
        if classes != found:
            expected = f"the classes of the training: {first_few(classes or (), _MOST_NAMED)}"
            remedy = "give the set files of all of these classes, and of no others"
            raise WorldError(
                dataset.key_of(name), f"the classes {first_few(found or (), _MOST_NAMED)}", expected, remedy
            )
    return {name: sources[name].split(split, dataset.key_of(name)) for name, split in splits.items()}


def notes_on(splits: Mapping[str, Split]) -> Iterator[str]:
    """Yield the notes on the splits of pipelines: examples that the training has, too, and a split that none reads."""
    train = splits["train"]
    source = train.source
    for name, other in splits.items():
        shared = train.shared(other) if name != "train" and (other.source is source or not len(other.numbers)) else 0
        if shared and (train.name != other.name or name != "validation"):
            both = f"{counted(shared, 'example')} of '{other.name}' are in '{train.name}', too"
            yield f"{both}: {'the validation' if name == 'validation' else name} knows them."
    if "validation" in splits and (unused := note_of_unused(source.dataset, source.counts)):
        yield unused


@frozen
class Examples:
    """Examples of a split.

    Attributes:
        count: Number of examples.
        encoded_bytes: Mean size of an example in its file.
    """

    count: int
    encoded_bytes: float


@frozen
class OnDisk:
    """A dataset by the metadata of TFDS or the files of others.

    Attributes:
        full_name: Name in messages.
        sizes: Number of examples of each whole split, and their bytes; none if the dataset is not on this disk.
        count: Function that counts the examples of a slice which may begin and end at certain ones alone; None if it
            may at any.
        unfit: Why files that are named can't be read as a dataset; empty if they can, or none are named.
    """

    full_name: str = ""
    unfit: str = ""
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    count: Callable[[str, int, int], int] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples of each whole split."""
        return {name: count for name, (count, _) in self.sizes.items()}

    def examples(self, split: str) -> Examples | None:
        """Return the examples of `split`; None if they are not on this disk, or the split is not a simple slice."""
        found = slices(split, self.counts)
        if not found:
            return None
        total = sum(end - start for _, start, end in found)
        size = sum((end - start) * self.sizes[name][1] / max(self.sizes[name][0], 1) for name, start, end in found)
        count = total if self.count is None else sum(starmap(self.count, found))
        return Examples(count=count, encoded_bytes=size / max(total, 1))

    def thinned(self, split: str, count: int, parts: int) -> str:
        """Return a split of about `count` examples of `split`, in so many parts that are spread evenly over it.

        It is `split` itself if that has no more examples, or if its examples are not known, or come together alone.
        """
        found = slices(split, self.counts)
        total = sum(end - start for _, start, end in found)
        if total <= count or not found or self.count is not None:
            return split
        pieces = []
        for name, start, end in found:
            own = min(max(1, round(parts * (end - start) / total)), end - start)
            for place in range(own):
                begin, behind = ((end - start) * at // own for at in (place, place + 1))
                taken = behind * count // total - begin * count // total  # which add up to that of the slice
                pieces.append(f"{name}[{start + begin}:{start + begin + max(1, taken)}]")
        return "+".join(pieces)

    def refusal(self, split: str, where: str) -> WorldError | None:
        """Return the error of a run that reads `split`, the value of the key `where`; None if nothing is known of one.

        TFDS reads slices that are not counted here, such as `all`.
        """
        if any(part.partition("[")[0].strip() not in {*self.sizes, "all"} for part in split.split("+")):
            return unknown(split, where, self.full_name, self.counts) if self.sizes else None
        found = slices(split, self.counts)
        is_empty = all(start == end for _, start, end in found) and any(self.counts[name] for name, _, _ in found)
        return empty(split, where, self.full_name) if is_empty else None


def unknown(name: str, where: str, full_name: str, known: Iterable[str]) -> WorldError:
    """Return the error for a split that a dataset with the splits `known` does not have."""
    whole, known = name.split("[", maxsplit=1)[0], [*known]
    listed = " or ".join(f"{split}, {split}[:80%]" for split in known)
    otherwise = "see TFDS's slicing" if whole in known else f"choose a split that is there, or a part: {listed}"
    return WorldError(
        where,
        f"'{name}', which {full_name} does not have",
        f"a part of one of its splits: {', '.join(known)}",
        did_you_mean(whole, known, name.replace(whole, "{}", 1), otherwise=otherwise),
        () if (close := likeliest(whole, known)) is None else ((f'{where}="{name.replace(whole, close, 1)}"',),),
    )


def empty(name: str, where: str, full_name: str) -> WorldError:
    """Return the error for a split without examples."""
    remedy = "choose a larger part of the split, or other data"
    return WorldError(where, f"no examples in '{name}' of {full_name}", "at least one", remedy)


Example: TypeAlias = "dict[str, tf.Tensor]"
Read: TypeAlias = "Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]"
"""A function from numbers of records to these, which several threads may call at once.

It raises `ValueError` if a record is damaged, `OSError` if it can't be read.
"""
_AT_ONCE = 1024
"""Records that are parsed at once."""


class Problem(NamedTuple):
    """Why an image can't be used.

    Attributes:
        reason: What was found.
        expected: What would be valid.
    """

    reason: str
    expected: str


Numbers: TypeAlias = "npt.NDArray[np.int64]"


@frozen
class Split:
    """A source, and which of its examples.

    Attributes:
        source: The dataset.
        name: Name in TFDS's slicing language.
        shards: Ranges that are read in turn, in the order of the data: of records in files, of which those at URLs have
            the paths of their copies; or of `numbers`.
        numbers: Numbers of the examples in the source, in the order of the data; none if they are records in files.
    """

    source: Source = field(repr=False, compare=False)
    name: str
    shards: tuple[Shard, ...]
    numbers: Numbers = field(default_factory=lambda: np.empty(0, np.int64), repr=False, compare=False)

    @cached_property
    def num_examples(self) -> int:
        """Number of examples in all shards."""
        return sum(shard.take for shard in self.shards)

    @cached_property
    def content(self) -> Identified:
        """Content of what is read at the time of the first access."""
        return self.source.content(self)

    @cached_property
    def records(self) -> npt.NDArray[Any]:
        """All records, of a source whose examples are numbered."""
        return self.source.records(self)

    @cached_property
    def constant(self) -> tf.Tensor:
        """All of these records, strings, as a tensor that all graphs share."""
        with tf.init_scope():
            return tf.constant(self.records.tolist(), tf.string)

    @cached_property
    def numbered(self) -> Read:
        """The records by their places, from 0; see `Numbered` for what it raises."""
        if len(self.numbers):
            return self.records.__getitem__
        from etlrun.sources.content import Numbered  # imported here, as below: plans need none of it

        self.fetch()
        return Numbered(self.shards).read

    @cached_property
    def refused(self) -> Callable[[int], Problem | None]:
        """Why the record at a place, from 0, is refused, which the source knows; None if it is read."""
        return self.source.refused(self)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths of all files, each once."""
        return tuple(dict.fromkeys(self.source.paths(self)))

    def fetch(self) -> None:
        """Fetch all shards that are missing; raise `EtlrunError` if that can't be."""
        if self.source.copies is not None:
            self.source.copies.all([self.source.objects[path] for path in self.paths])

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of all files by path; `OSError` for one that is gone."""
        of = self.source.objects
        return {path: of[path].bytes if path in of else os.stat(path).st_size for path in self.paths}  # noqa: PTH116 - of many files

    def read(self, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        """Return records of a shard (string scalars, or numbers), of which the arguments are attributes, or tensors.

        An object is fetched first if `path` is no tensor: a pass fetches it by itself.
        """
        return self.source.read(self, path, skip, take)

    def part(self, start: int, stop: int) -> Split:
        """Return the examples from the one of place `start` to the one before `stop`, in the order of the data."""
        from etlrun.sources.content import cut

        if len(self.numbers):
            return self.source.numbered(self.name, self.numbers[start:stop])
        return replace(self, shards=tuple(cut(self.shards, start, stop)))

    def parts(self, at_once: int) -> Iterator[Split]:
        """Yield so many examples at a time, in order."""
        for start in range(0, self.num_examples, at_once):
            yield self.part(start, min(start + at_once, self.num_examples))

    def shared(self, other: Split) -> int:
        """Return how many of its examples the `other` split of the same dataset has, too."""
        if len(self.numbers):
            return int(np.isin(self.numbers, other.numbers).sum())
        of_file = grouped((shard.path, shard) for shard in self.shards)
        pairs = ((one, of) for one in other.shards for of in of_file.get(one.path, ()))
        return sum(max(0, min(one.end, of.end) - max(one.skip, of.skip)) for one, of in pairs)

    def place(self, shard: Shard, number: int) -> tuple[str, int | None]:
        """Return the file of a record of `shard`, and its number there, from 0; None if it is the whole file."""
        if len(self.numbers):
            return self.source.place(int(self.numbers[number]))
        of = self.source.objects
        return of[shard.path].url if shard.path in of else shard.path, number

    def where(self, shard: Shard, number: int) -> str:
        """Return the file of a record of `shard`, and its number there if the file has several, for people."""
        path, record = self.place(shard, number)
        return path if record is None else f"{path}, {self.source.noun_of_records} {record}"


class Source:
    """A dataset that is there.

    Attributes:
        dataset: Its config.
        full_name: Name in messages.
        identity: Name in the keys of caches.
        num_classes: Number of classes of a class target, an integer in [0, num_classes); None for other targets.
        class_names: Names of the classes; None if they are unknown.
        notes: What a run has to say of it, a sentence each.
        copies: Copies of its files, if these are objects of URLs; else None.
        objects: These objects by the paths of their copies.
        home: Path of the shards of a source whose examples are numbered.
    """

    dataset: Dataset
    full_name: str
    identity: str
    num_classes: int | None
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    copies: Copies | None = None
    objects: Mapping[str, Object] = MappingProxyType({})
    home: str = ""
    repair: ClassVar[str] = "prepare the dataset again"
    """Remedy for a record that can't be used."""
    noun: ClassVar[str] = "a file"
    """What a file of it is."""
    noun_of_shards: ClassVar[str] = "shard"
    noun_of_records: ClassVar[str] = "record"
    is_read_by_parser: ClassVar[bool] = False
    """Whether records only name files or rows, which the parser reads."""
    knows_refused: ClassVar[bool] = False
    """Whether images that are not to be decoded are known before they are read."""

    def __init__(self, dataset: Any) -> None:
        """Open the dataset, and prepare it if that is necessary and allowed.

        Raises:
            EtlrunError: It is unavailable.
        """
        raise NotImplementedError

    @classmethod
    def begin(cls, dataset: Any) -> None:
        """Begin what takes long to open `dataset`, and needs no TensorFlow, which is imported meanwhile."""

    @classmethod
    def on_disk(cls, dataset: Any) -> OnDisk:
        """Return what is known of `dataset` without opening it; nothing if it isn't on this disk. Fast: plans ask."""
        raise NotImplementedError

    @classmethod
    def is_there(cls, dataset: Any) -> bool:
        """Return whether the files of `dataset` are on this machine, also if they can't be read."""
        return bool(cls.on_disk(dataset).sizes)

    @classmethod
    def by_class(cls, _dataset: Any, _split: str) -> dict[str, int] | None:
        """Return the examples of each class by its name, in the order of the classes; None if they are unknown."""
        return None

    def conversion(self, _place: str) -> str:
        """Return the remedy for an image in this place that another program can read."""
        return f"convert the image that the record was written from, and {self.repair}"

    @property
    def names_of_classes(self) -> tuple[str, ...] | None:
        """Names of the classes, their numbers if they are unknown; None if the target is no class."""
        return self.class_names or (None if self.num_classes is None else tuple(map(str, range(self.num_classes))))

    def names_of(self, target: str) -> tuple[str, ...]:
        """Return the names of the classes or labels of one of several targets; their numbers where no more is known."""
        return self.dataset.examples.features[target].classes

    @property
    def limits(self) -> dict[str, int]:
        """Number of values of each target whose values are integers from 0 on, by name."""
        flow = self.dataset.examples
        if self.num_classes is not None:
            return {flow.target: self.num_classes}
        targets = {name: flow.features[name] for name in flow.targets}
        return {name: 2 if of.is_labels else len(of.classes) for name, of in targets.items() if of.classes}

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of examples of each whole split."""
        return self.on_disk(self.dataset).counts

    @cached_property
    def _labels(self) -> dict[tuple[str, int], npt.NDArray[np.int64]]:
        return {}

    def labels_of(self, split: Split) -> npt.NDArray[np.int64]:
        """Return the class of each example of a split, in the order of the data; its records are read once."""
        key = split.name, split.num_examples  # the part of a host has the name of the whole
        if key not in self._labels:
            self._labels[key] = self.labels(split)
        return self._labels[key]

    def split(self, name: str, where: str) -> Split:
        """Return the examples of the split `name`; `EtlrunError` if there are none. `where` is the key for messages."""
        parts = slices(name, self.counts)
        if not parts:
            raise self.unknown_split(name, where)
        split = self.combine(name, parts)
        if not split.num_examples:
            raise self.empty(name, parts, where)
        return split

    def unknown_split(self, name: str, where: str) -> WorldError:
        """Return the error for a split that the dataset does not have."""
        return unknown(name, where, self.full_name, self.counts)

    def combine(self, name: str, parts: Sequence[Slice]) -> Split:
        """Return the split `name`, which is these slices of whole ones, and may be empty; raises as `split` does."""
        raise NotImplementedError

    def empty(self, name: str, parts: Sequence[Slice], where: str) -> WorldError:
        """Return the error for a split without examples."""
        return empty(name, where, self.full_name)

    def numbered(self, name: str, numbers: Numbers) -> Split:
        """Return the split of the examples of these numbers, in the order of these."""
        from etlrun.sources.content import Shard

        shards = tuple(Shard(path=self.home, skip=skip, take=take) for skip, take in self.groups(len(numbers)))
        return Split(source=self, name=name, shards=shards, numbers=numbers)

    def groups(self, count: int) -> list[tuple[int, int]]:
        """Return the shards of so many numbered examples: how many are before each, and its size."""
        return [(0, count)]

    def content(self, split: Split) -> Identified:
        """Return what identifies the content of a split."""
        from etlrun.sources.content import Content, VersionedContent

        if self.copies is None:
            return Content(split.shards)
        return VersionedContent([(shard, self.objects[shard.path]) for shard in split.shards], self.copies.storage)

    def paths(self, split: Split) -> Iterable[str]:
        """Return the paths of the files of a split, maybe several times."""
        return (shard.path for shard in split.shards)

    def records(self, split: Split) -> npt.NDArray[Any]:
        """Return all records of a split, if its examples are numbered."""
        return split.numbers

    def place(self, number: int) -> tuple[str, int | None]:
        """Return the file of the example of that number, and its number there; None if it is the whole file."""
        raise NotImplementedError

    def refused(self, split: Split) -> Callable[[int], Problem | None]:
        """Return the function from the place of a record to why it is refused, which is known without reading it."""
        return lambda _: None

    def read(self, split: Split, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        """Return records of a shard of a split; see `Split.read`."""
        if isinstance(path, str) and self.copies is not None:
            self.copies.one(self.objects[path])
        return tf.data.TFRecordDataset(path).skip(skip).take(take)

    def labels(self, split: Split) -> npt.NDArray[np.int64]:
        """Return the class of each example in the order of the data; reads all records.

        With `dataset.on_corrupt=skip`, without those that can't be read or parsed; otherwise they raise.
        """
        split.fetch()
        key, skips = self.dataset.keys[self.dataset.examples.target], self.dataset.on_corrupt == "skip"
        specs, found = {key: tf.io.FixedLenFeature((), tf.int64)}, [np.empty(0, np.int64)]
        for shard in split.shards:
            records = split.read(shard.path, shard.skip, shard.take).batch(1 if skips else _AT_ONCE)
            labels = records.map(lambda batch: tf.io.parse_example(batch, specs)[key])
            if skips:  # each try takes a number, so that a file which is gone meanwhile ends them
                numbered = tf.data.Dataset.zip((tf.data.Dataset.range(shard.take), labels)).ignore_errors()
                labels = numbered.map(lambda _, label: label)
            found += labels.as_numpy_iterator()
        return np.concatenate(found)

    def parser(self) -> Callable[[tf.Tensor], Example]:
        """Return a function from a record (string scalar), or a batch of them, to its features by name.

        Unless a source says otherwise, it is a serialised example.
        """
        return partial(parse_examples, features=self.dataset.stored)

    def unreadable(self, path: str, reason: str) -> WorldError:
        """Return the error for a file that can't be opened or read, with the system's reason."""
        what = f"{self.noun} of {self.full_name}"
        if reason == os.strerror(errno.ENOENT):
            return WorldError(path, "no such file", what, self.remedy_of(path))
        return WorldError(path, reason, f"{what} that can be read", "check the file's permissions and its storage")

    def remedy_of(self, path: str) -> str:
        """Return what to do if the file at `path` is gone."""
        return "restore the file"


def all_there(split: Split) -> None:
    """Raise `WorldError` if a shard of `split` is missing or can't be read."""
    for path in split.paths:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - of many files; opening a pipe would wait
                raise split.source.unreadable(path, "not a regular file")
            with open(path, "rb") as file:  # noqa: PTH123
                file.read(1)
        except OSError as error:
            raise split.source.unreadable(path, error.strerror or str(error)) from error


def parse_examples(record: tf.Tensor, features: Mapping[str, tuple[Any, ...]]) -> dict[str, tf.Tensor]:
    """Return the features of a serialised example, or of a batch of them, by name.

    Of each feature its key, its shape, and its dtypes in examples and in a pipeline are given.
    """
    read = tf.io.parse_example if record.shape.rank else tf.io.parse_single_example
    specs = {key: tf.io.FixedLenFeature(shape, tf.as_dtype(stored)) for key, shape, stored, _ in features.values()}
    found = read(record, specs)
    return {name: tf.cast(found[key], dtype) for name, (key, _, _, dtype) in features.items()}


def source_type(dataset: Dataset) -> type[Source]:
    """Return the class of the source of `dataset`, whose module is imported for it alone."""
    module, _, name = dataset.source.partition(":")
    found: type[Source] = getattr(importlib.import_module(module), name)
    return found


def open_source(dataset: Dataset) -> Source:
    """Return the source of `dataset`, prepared if that is necessary and allowed; `EtlrunError` if it is unavailable."""
    return source_type(dataset)(dataset)


def on_disk(dataset: Dataset) -> OnDisk:
    """Return what is known of `dataset` without opening it."""
    return source_type(dataset).on_disk(dataset)
