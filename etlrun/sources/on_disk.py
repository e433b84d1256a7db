"""What is known of a dataset without opening it: the examples of its splits, and whether a split is one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from etlrun.sources.slices import slices
from etlrun.system.errors import WorldError, did_you_mean
from etlrun.system.values import frozen

CLASSES = "examples_by_class"
"""Key in the `metadata.json` of a dataset: the examples of each class of the feature `label`, by split and name."""


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
    """

    full_name: str = ""
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples of each whole split."""
        return {name: count for name, (count, _) in self.sizes.items()}

    def examples(self, split: str) -> Examples | None:
        """Return the examples of `split`; None if they are not on this disk, or the split is not a simple slice."""
        found = slices(split, self.counts)
        if not found:
            return None
        count = sum(end - start for _, start, end in found)
        size = sum((end - start) * self.sizes[name][1] / max(self.sizes[name][0], 1) for name, start, end in found)
        return Examples(count=count, encoded_bytes=size / max(count, 1))

    def thinned(self, split: str, count: int, parts: int) -> str:
        """Return a split of about `count` examples of `split`, in so many parts that are spread evenly over it.

        It is `split` itself if that has no more examples, or if its examples are not known.
        """
        found = slices(split, self.counts)
        total = sum(end - start for _, start, end in found)
        if total <= count or not found:
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
    )


def empty(name: str, where: str, full_name: str) -> WorldError:
    """Return the error for a split without examples."""
    return WorldError(
        where, f"no examples in '{name}' of {full_name}", "at least one", "choose a larger part of the split"
    )
