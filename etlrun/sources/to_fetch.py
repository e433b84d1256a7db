"""What a run has to fetch of a dataset at URLs, by listings alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate

from etlrun.remote.objects import Object
from etlrun.sources.counts import known_counts
from etlrun.sources.mirror import mirror_of
from etlrun.sources.remote import copies_of
from etlrun.sources.slices import slices
from etlrun.sources.tfrecord import files_of
from etlrun.stages.dataset import Declared, TfdsDataset, TFRecords
from etlrun.system.errors import EtlrunError, WorldError
from etlrun.system.hidden import is_closed
from etlrun.system.machine import rounded

_Counts = Mapping[str, Mapping[str, int]]
"""Numbers of examples by split, and in it by file."""


def note_of_fetching(dataset: Declared) -> str | None:
    """Return the note on the bytes that a run has to fetch from URLs, and those that are here, or why it is not known.

    None if what the store says of the dataset is not what it holds, which the run says.
    """
    if is_closed(dataset.storage):
        return "to fetch: unknown, since only a run reads the variables of dataset.storage"
    try:
        objects = [*_needed(dataset)]
    except EtlrunError as error:
        fault = error.faults[0]
        return f"to fetch: unknown, since a run would fail: {fault.where}: found {fault.found}"
    except (OSError, ValueError):
        return None
    missing = copies_of(dataset).missing(objects)
    whole, left = sum(of.bytes for of in objects), sum(of.bytes for of in missing)
    shards = f"{len(objects):,} shard{'s' * (len(objects) != 1)}"
    if not missing:
        return f"to fetch: nothing, {'all ' * (len(objects) > 1)}{shards} ({rounded(whole)}) are here"
    here = f"; {rounded(whole - left)} are here" if left < whole else ""
    return f"to fetch: {rounded(left)} in {f'{len(missing):,} of ' * bool(here)}{shards}{here}"


def _needed(dataset: Declared) -> Iterator[Object]:
    """Yield the objects with the examples of both splits, each once."""
    counts, objects = _of_tfds(dataset) if isinstance(dataset, TfdsDataset) else _of_files(dataset)
    if counts is None:  # all are counted first
        yield from dict.fromkeys(objects.values())
        return
    totals, found = {name: sum(of.values()) for name, of in counts.items()}, dict[Object, None]()
    for split in filter(None, (dataset.split, dataset.eval_split)):
        parts = slices(split, totals) or [(name, 0, count) for name, count in totals.items()]
        for name, start, end in parts:
            firsts = [0, *accumulate(counts[name].values())]
            for (file, count), first in zip(counts[name].items(), firsts[:-1], strict=True):
                if max(start, first) < min(end, first + count):
                    if file not in objects:
                        raise WorldError(file, "no such file", "a shard of the dataset", "write all shards there")
                    found[objects[file]] = None
    yield from found


def _of_tfds(dataset: TfdsDataset) -> tuple[_Counts, Mapping[str, Object]]:
    mirror = mirror_of(dataset)
    splits = json.loads((mirror.folder / "dataset_info.json").read_text()).get("splits", [])
    counts = {}
    for of in splits:
        lengths = [int(length) for length in of.get("shardLengths", [])]
        ends = [f"-{of['name']}.tfrecord-{number:05d}-of-{len(lengths):05d}" for number in range(len(lengths))]
        absent = f"{mirror.url}/{dataset.name}"
        files = [next((name for name in mirror.objects if name.endswith(end)), absent + end) for end in ends]
        counts[of["name"]] = dict(zip(files, lengths, strict=True))
    return counts, mirror.objects


def _of_files(dataset: Declared) -> tuple[_Counts | None, Mapping[str, Object]]:
    assert isinstance(dataset, TFRecords)  # noqa: S101 - there is no third kind
    files, objects = files_of(dataset)
    known = known_counts(objects, copies_of(dataset))
    if known.keys() != objects.keys():
        return None, objects
    return {split: {path: known[path] for path in paths if path in known} for split, paths in files.items()}, objects
