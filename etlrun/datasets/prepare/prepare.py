"""Preparation of a source: check, splits, shards, metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from etlrun.datasets.prepare import check
from etlrun.datasets.prepare.archives import unpack
from etlrun.datasets.prepare.check import Duplicates, Image
from etlrun.datasets.prepare.options import Options
from etlrun.datasets.prepare.readers import in_folder, path_of
from etlrun.datasets.prepare.shards import VersionStore, WrittenShard, planned, publish, require_space, working, write
from etlrun.datasets.prepare.source import ImageSource, of_classes
from etlrun.system.errors import EtlrunError, fault
from etlrun.system.progress import progress
from etlrun.system.values import frozen


@frozen
class Prepared:
    """A dataset that has been prepared.

    Attributes:
        shards: Its shards.
        sizes: Bytes of their files by name.
        source: The images that it is made of.
        broken: Names of images that are left out, with the reasons.
        warned: Names of JPEGs of which libjpeg warns, with what it says.
        duplicates: Images that occur more than once.
    """

    shards: Sequence[WrittenShard]
    sizes: Mapping[str, int]
    source: ImageSource
    broken: Mapping[str, str]
    warned: Mapping[str, str]
    duplicates: Duplicates


def prepare(options: Options, source: ImageSource | None) -> Prepared:
    """Write a source as a dataset of TFDS, which appears when it is complete; None is an archive, unpacked beside it.

    What a run that was killed left is removed. The source is only read.

    Raises:
        EtlrunError: All broken images, unless they are skipped; a version that exists; a full disk.
    """
    from etlrun.datasets.prepare.shards import require_unknown, write_metadata  # imports TFDS

    require_unknown(options)
    with working(options) as folder, progress() as task, _archive_named(options, folder / "unpacked") as unpacked:
        version = folder / "version"
        version.mkdir()
        source = source or in_folder(options, unpack(path_of(options), unpacked))
        require_space(options, source)
        verdicts = check.check(source, task("checked", len(source.entries)))
        faults = check.faults_of(source, verdicts)
        if faults and not options.skips_corrupt:
            raise EtlrunError(faults)
        left = [(entry, of) for entry, of in zip(source.entries, verdicts, strict=True) if not of.reason]
        entries = [entry for entry, _ in left]
        label = {name: index for index, name in enumerate(source.classes)}
        kept = {entry.label for entry in entries}, {entry.split for entry in entries}
        lost = [f"the class {name}" for name in source.classes if name not in kept[0]]
        lost += [f"the split {name}" for name in sorted({entry.split for entry in source.entries} - kept[1])]
        faults = [
            fault(source.where, f"{of}, all of whose images are broken", "images that can be decoded", "repair them")
            for of in lost
        ] or list(of_classes(source.where, entries, source.classes))
        if faults:
            raise EtlrunError(faults)
        images = [
            Image(entry=entry, digest=of.digest, label=label[entry.label], split=entry.split) for entry, of in left
        ]
        found = check.duplicates(images)  # of the source's own splits
        if options.percents is not None:
            images = check.assigned(images, options.percents, options.seed)
            if empty := [name for name in options.percents if name not in {image.split for image in images}]:
                what = f"no examples for {', '.join(empty)} among {len(images):,} images"
                remedy = "choose other percents or more images"
                raise EtlrunError([fault("--split", what, "examples for each split", remedy)])
            found = check.duplicates(images)
        splits = sorted(check.ordered(images, options.seed).items(), key=lambda of: (not is_training(of[0]), of[0]))
        shards = planned(options.name, dict(splits), options.shards)
        store = None if options.url is None else VersionStore(options)
        sizes = write(source, shards, version, task("written", len(images)), store)
        write_metadata(options, version, shards, sizes, source.classes)
        publish(version, options.target) if store is None else store.publish(version)
    broken = {of.path: verdict.reason for of, verdict in zip(source.entries, verdicts, strict=True) if verdict.reason}
    return Prepared(
        shards=shards,
        sizes=sizes,
        source=source,
        broken={**source.broken, **broken},
        warned={of.path: it.warning for of, it in zip(source.entries, verdicts, strict=True) if it.warning},
        duplicates=found,
    )


@contextmanager
def _archive_named(options: Options, unpacked: Path) -> Iterator[Path]:
    """Make a folder for what is in an archive; faults have the path of the archive in its place."""
    unpacked.mkdir()
    try:
        yield unpacked
    except EtlrunError as error:
        names = str(unpacked), str(path_of(options))
        faults = [replace(of, where=of.where.replace(*names), remedy=of.remedy.replace(*names)) for of in error.faults]
        raise EtlrunError(faults) from error


def is_training(split: str) -> bool:
    """Return whether a split is that of training, by its name."""
    return split.lower().startswith("train")
