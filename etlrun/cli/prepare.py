"""`etlrun prepare`: write own images as a TFDS dataset."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from etlrun.cli import parsers
from etlrun.config.overrides import typed
from etlrun.datasets.prepare.options import Options, parsed
from etlrun.datasets.prepare.prepare import Prepared, is_training, prepare
from etlrun.datasets.prepare.readers import opened
from etlrun.datasets.prepare.shards import INFO, require_new
from etlrun.datasets.prepare.source import LISTED, Source
from etlrun.remote.transfers import there
from etlrun.sources.listing import OTHER_IMAGES
from etlrun.system.terminal import print_table, say

if TYPE_CHECKING:
    from etlrun.datasets.prepare.check import Image

_HEADER = ("split", "examples", "shards", "classes", "MB")


def main(arguments: list[str]) -> None:
    """Run `etlrun prepare SOURCE --name NAME`; raise `EtlrunError` with all faults of the arguments or the source."""
    options = parsed(vars(parser().parse_args(arguments)))
    require_new(options)
    with ExitStack() as opening:
        from etlrun.run.backend import prepare as quietly  # imports TensorFlow, so only after the arguments are known

        if options.features is not None:  # TensorFlow reads the examples of TFRecords
            opening.enter_context(quietly(None))
        source = opening.enter_context(closing(opened(options)))
        if options.features is None:
            opening.enter_context(quietly(None))
        prepared = prepare(options, source)
        print_table(_HEADER, list(_rows(prepared)))
        for line in (*_notes(source, prepared), f"folder    {options.place}"):
            say(line)
        say(f"train     {_command(options, prepared)}")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command(
        "prepare",
        "Write your images as a TFDS dataset. SOURCE is a folder of classes, which may stand in folders of "
        "splits; a list (.csv or .jsonl) with the columns path, label and optionally split; a zip or tar archive of "
        "such a folder; or a pattern of TFRecords, with --features.",
    )
    parser.add_argument("source", metavar="SOURCE", help="folder, list, archive, or pattern of TFRecords")
    parser.add_argument("--name", required=True, metavar="NAME", help="name of the dataset")
    parser.add_argument("--version", default="1.0.0", metavar="X.Y.Z", help="version of the dataset; default: 1.0.0")
    parser.add_argument("--data-dir", metavar="DIR", help="data folder of TFDS, or its URL; default: TFDS's own")
    parser.add_argument(
        "--split", metavar="NAME=PERCENT,...", help="splits of each class; default: those of the source"
    )
    parser.add_argument("--shards", metavar="N", help="shards of each split; default: shards of 100 to 200 MB")
    parser.add_argument("--seed", metavar="N", help="seed of the order and of the splits; default: 0")
    parser.add_argument(
        "--on-corrupt",
        choices=("raise", "skip"),
        default="raise",
        help="end at the first image that can't be used (default), or leave such images out",
    )
    parser.add_argument(
        "--convert",
        action="store_const",
        const="yes",
        help="make upright JPEGs or PNGs of HEIC, AVIF, WebP, TIFF, GIF and BMP, and of photos that EXIF turns",
    )
    parser.add_argument("--features", metavar="image=KEY,label=KEY", help="keys of the examples of TFRecords")
    return parser


def _rows(prepared: Prepared) -> Iterator[Sequence[str]]:
    for split in _splits(prepared):
        shards = [shard for shard in prepared.shards if shard.split == split]
        images = [image for shard in shards for image in shard.images]
        classes = len({image.label for image in images})
        size = sum(prepared.sizes[shard.file] for shard in shards)
        yield split, f"{len(images):,}", str(len(shards)), str(classes), f"{size / 1e6:,.1f}"


def _splits(prepared: Prepared) -> list[str]:
    return list(dict.fromkeys(shard.split for shard in prepared.shards))


def _notes(source: Source, prepared: Prepared) -> Iterator[str]:
    """Yield what the source has that a reader may not expect."""
    yield from (f"note      {note}" for note in source.notes)
    across, conflicting = prepared.duplicates.across, prepared.duplicates.conflicting
    yield from _listed("leakage", "identical images in several splits", [_named(group, "split") for group in across])
    yield from _listed(
        "labels", "identical images with several labels", [_named(group, "label") for group in conflicting]
    )
    if prepared.duplicates.within:
        yield f"note      images identical to another one in the same split: {prepared.duplicates.within:,}"
    broken = [f"{name}: {reason}" for name, reason in prepared.broken.items()]
    yield from _listed("skipped", "broken images", broken)
    warned = [f"{name}: {warning}" for name, warning in prepared.warned.items()]
    yield from _listed("note", "JPEGs of which libjpeg warns, since data is missing or damaged", warned)
    foreign = [path for path in source.ignored if path.lower().endswith(OTHER_IMAGES)]
    others = [path for path in source.ignored if path not in {*foreign}]
    which = "of formats that are not read" if source.convert else "of other formats, which --convert takes"
    yield from _listed("ignored", f"images {which}", foreign)
    yield from _listed("ignored", "files without the suffix of an image", others)
    yield from _listed("ignored", "images in no folder of a class", source.outside)
    yield from _listed("ignored", "links of the archive that don't end at a file", source.loose)


def _listed(kind: str, things: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield the number of texts, if there are any, and the first ones below it."""
    if texts:
        yield f"{kind:<10}{things}: {len(texts):,}"
    for text in (*texts[:LISTED], *(["…"] if texts[LISTED:] else [])):
        yield f"{'':<10}{text}"


def _named(group: Sequence[Image], what: str) -> str:
    return " = ".join(
        f"{image.entry.path} ({image.split if what == 'split' else image.entry.label})" for image in group
    )


def _command(options: Options, prepared: Prepared) -> str:
    """Return the command that trains on the dataset."""
    names = _splits(prepared)
    train, others = names[0], [name for name in names if not is_training(name)]
    evaluated = next((name for name in others if name.lower().startswith("val")), others[0] if others else "")
    split, eval_split = (train, evaluated) if evaluated != train and evaluated else (f"{train}[:80%]", f"{train}[80%:]")
    if options.url is None:
        versions = [*map(str, options.family.glob(f"*.*.*/{INFO}"))]
    else:
        versions = [url for url in there(f"{options.url}/{options.name}", {}) if url.endswith(f"/{INFO}")]
    words = {"name": options.name, "version": options.version} if versions[1:] else {"name": options.name}
    words |= {"data_dir": options.url or str(options.data_dir), "split": split, "eval_split": eval_split}
    return f"python -m etlrun dataset=tfds {' '.join(_override(f'dataset.{key}', of) for key, of in words.items())}"


def _override(key: str, value: str) -> str:
    return f"{key}={value}" if re.fullmatch(r"[\w./-]+", value, re.ASCII) else typed(key, value)
