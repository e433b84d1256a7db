"""Kinds of datasets, for which the laws of `tests/test_laws.py` hold: a row writes files, and trains on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from etlrun.planning.plan import Plan
from tests import blocks, listings, lists, pictures, tables, texts
from tests.configs import TENSORFLOW, plan_of
from tests.runs import complete_here, small, summary_of

NUM_ARRAYS = 60
OF_LAWS = ("trainer.epochs=2", "trainer.checkpoint_every_steps=2", "measure.digest=true")
"""Of all runs."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of dataset, and its run.

    Attributes:
        write: Writes its files into a folder.
        words: The overrides of its run on the files of a folder, or below a URL.
        other: An override that changes what examples are, and from which stage on it does so.
        file: Its file of rows, as `predict` takes it; empty if it has none.
        formats: In which it is exported, so that an export takes what is stored.
        in_order: Overrides with which a validation has the order of the data.
        is_served: Whether it is read from a server.
    """

    write: Callable[[Path], object]
    words: Callable[[Any], Sequence[str]]
    other: tuple[str, str]
    file: str = ""
    formats: tuple[str, ...] = ("saved_model", "keras")
    in_order: tuple[str, ...] = ()
    is_served: bool = False

    def run_on(self, place: Path | str) -> list[str]:
        """The overrides of its run; those of one of one epoch less are the same."""
        given = {word.partition("=")[0] for word in OF_LAWS}
        return [*(word for word in self.words(place) if word.partition("=")[0] not in given), *OF_LAWS]


def _images(folder: Path) -> list[str]:
    flipped = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
    words = small(folder, TENSORFLOW, flipped, "cache=none", "load.batch_size=4")
    return [*(word for word in words if not word.startswith("model.")), "model=linear"]


def arrays() -> dict[str, Any]:
    """Arrays of 60 rows: numbers, small matrices, texts, and a target."""
    some = np.random.default_rng(0).random((NUM_ARRAYS, 2, 3)).astype("float32")
    kinds = np.array(["a", "b", "c"])[np.arange(NUM_ARRAYS) % 3]
    return {"x": some[:, 0, 0], "wide": some, "kind": kinds, "y": some.sum(axis=(1, 2)) * 10}


def _arrays(folder: Path) -> list[str]:
    words = tables.words_of(folder, "model=linear", "load.shuffle=full", target="{y: {number: standardize}}")
    words = tuple(word for word in words if not word.startswith(("dataset=", "dataset.files", "dataset.inputs")))
    return ["dataset=arrays", f"dataset.files={folder / 'arrays.npz'}", "dataset.inputs=[x,kind,wide]", *words]


STEPS = tables.STEPS.replace("of: garden", "of: a garden")


def write_rows(folder: Path) -> None:
    """Write the houses, of which a column has a name that TensorFlow does not allow."""
    pyarrow.parquet.write_table(rows(), folder / "houses.parquet")


def rows() -> pa.Table:
    """Return the houses that `write_rows` writes."""
    return tables.houses().rename_columns(["area", "rooms", "kind", "sold", "a garden", "price", "band"])


def _rows(folder: Path) -> list[str]:
    words = tables.words_of(folder, "model=linear", f"transform.columns={{{STEPS}}}", target="{band: binary}")
    return ["dataset.exclude=[price]" if word.startswith("dataset.inputs") else word for word in words]


def _several(folder: Path) -> list[str]:
    inputs = ("dataset.inputs=[area,rooms]", "dataset.weight=times", "transform=columns")
    return [*tables.words_of(folder, "model=tabular", "model.units=[4]", *inputs, target=tables.TARGETS)]


def _heads(folder: Path) -> list[str]:
    return [*_several(folder), "model.heads=3", "model.frequencies=2", "model.dropout=0.1"]


def _texts(folder: Path) -> Sequence[str]:
    stars = ", stars: {of: stars, steps: [standardize]}"
    return texts.words_of(folder, "model=text", "model.units=4", "load.tokens_per_batch=64", more=stars)


CUT = texts.IDS.replace("lookup", "{truncate: 3}, lookup")


def _sequences(folder: Path) -> Sequence[str]:
    columns = f"{lists.SIGNAL.replace('[', '[{fill: 5}, ')}, {lists.EVENTS}, {lists.NOTE}, {lists.AGE}"
    return lists.words_of(folder, "model=text", "model.layer=gru", "model.units=4", columns=columns)


def _photos(folder: Path) -> list[str]:
    return listings.words_of(folder, "load.batch_size=4", columns=PHOTOS, target="labels")


PHOTOS = f"{listings.PHOTO}, {listings.AREA}".replace("decode", "{decode: {library: tensorflow}}")


KINDS: Mapping[str, Kind] = {
    "images": Kind(
        write=pictures.write_tiny_pictures,
        words=_images,
        other=("transform.resize.method=area", "transform.resize"),
        formats=("saved_model",),
    ),
    "rows": Kind(
        write=write_rows,
        words=_rows,
        other=(f"transform.columns={{{STEPS.replace('180', '170')}}}", "transform.columns"),
        file="houses.parquet",
    ),
    "arrays": Kind(
        write=lambda folder: np.savez(folder / "arrays.npz", **arrays()),
        words=_arrays,
        other=("transform.columns={x: {of: x, steps: [log1p]}, wide: {}}", "transform.columns"),
        file="arrays.npz",
    ),
    "text": Kind(
        write=texts.write_reviews,
        words=_texts,
        other=(f"transform.columns={{review: {{of: review, steps: [{CUT}]}}}}", "transform.columns"),
        file="reviews.jsonl",
        in_order=("load.boundaries=[]", "load.tokens_per_batch=null"),
    ),
    "sequences": Kind(
        write=lists.write_signals,
        words=_sequences,
        other=("transform.columns={signal: {of: signal, steps: [{fill: 5}, {clip: [-1, 1]}]}}", "transform.columns"),
        file="signals.parquet",
        in_order=("load.boundaries=[]",),
    ),
    "several": Kind(
        write=lambda folder: pyarrow.parquet.write_table(tables.several(), folder / "houses.parquet"),
        words=_several,
        other=("transform.columns={area: {of: area, steps: [{fill: 0}]}, rooms: {}}", "transform.columns"),
        file="houses.parquet",
    ),
    "heads": Kind(
        write=lambda folder: pyarrow.parquet.write_table(tables.several(), folder / "houses.parquet"),
        words=_heads,
        other=("transform.columns={area: {of: area, steps: [{fill: 0}]}, rooms: {}}", "transform.columns"),
        file="houses.parquet",
    ),
    "photos in rows": Kind(
        write=listings.write_listings,
        words=_photos,
        other=(
            f"transform.columns={{{PHOTOS.replace('32', '33')}}}",
            "transform.columns.photo.resize",
        ),
        file="listings.csv",
        formats=("saved_model",),
    ),
    "remote": Kind(
        write=blocks.write_blocks,
        words=lambda place: blocks.of_files(place, *blocks.OF_NUMBERS),
        other=("dataset.split='train[:60%]'", "the dataset"),
        is_served=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Made:
    """A kind, where its files are, its run, and the folder that has the files of one that is served."""

    kind: Kind
    place: Path | str
    run: Path
    files: Path

    @property
    def words(self) -> list[str]:
        return self.kind.run_on(self.place)

    @property
    def epochs(self) -> list[dict[str, Any]]:
        return list(summary_of(self.run)["epochs"])

    def plan(self, *words: str) -> Plan:
        return plan_of(*self.words, *words)


def made_of(name: str, once: Callable[[str, Callable[[Path], object]], Path]) -> Made:
    """A kind that is read from files, with its run, which is made once for all workers."""
    kind = KINDS[name]
    files = once(f"files of {name}", kind.write)
    run = once(f"run of {name}", lambda folder: complete_here(folder, kind.run_on(files)))
    return Made(kind=kind, place=files, run=run, files=files)
