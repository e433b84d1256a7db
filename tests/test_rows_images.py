"""Images as columns of rows, in files or as bytes: the same examples as those of other datasets, with all verbs."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etlrun.datasets.examine.doctor import diagnosed
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, raised, refusal_of
from tests.conftest import Once
from tests.golden import Says
from tests.kinds import made_of
from tests.listings import AREA, BYTES, COUNT, PHOTO, emulated, words_of, write_listings
from tests.pipelines import training_pipeline
from tests.programs import program_of
from tests.runs import complete_here, run_here
from tests.tables import loaded_run


@pytest.fixture(scope="session")
def listings(once: Any) -> Path:
    return once("listings", write_listings)  # type: ignore[no-any-return]


def batches_of(*words: str, passes: int = 2) -> list[dict[str, Any]]:
    """Inputs and target of all batches of training."""
    with training_pipeline(plan_of(*words)) as pipeline:
        found = [[*pipeline.dataset.as_numpy_iterator()] for _ in range(passes)]
    named = [
        (inputs if isinstance(inputs, dict) else {"photo": inputs}, target) for of in found for inputs, target in of
    ]
    return [{**inputs, "target": target} for inputs, target in named]


def are_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a) for a, b in pairs)


SAME = {
    "bytes": ((), f"{BYTES}, {AREA}"),
    "memory": (("cache=memory", "cache.at=resize"), f"{PHOTO}, {AREA}"),
    "disk": (("cache=disk", "cache.at=resize"), f"{PHOTO}, {AREA}"),
    "decoded": (("cache=memory", "cache.at=decoded"), f"{BYTES}, {AREA}"),
    "source": (("cache=memory", "cache.at=source"), f"{PHOTO}, {AREA}"),
    "serial": (("transform.num_parallel_calls=null",), f"{PHOTO}, {AREA}"),
}


@pytest.mark.parametrize("case", SAME)
def test_all_ways_to_read_give_the_same_batches(listings: Path, tmp_path: Path, case: str) -> None:
    others, columns = SAME[case]
    of_disk = (f"cache.dir={tmp_path}",) if "cache=disk" in others else ()
    buffered = ("load.shuffle=buffer",) if others[:1] and others[0].startswith("cache") else ()
    plain = batches_of(*emulated(listings, *buffered))
    assert plain[0]["photo"].shape == (8, 32, 40, 3)
    assert are_same(batches_of(*emulated(listings, *others, *buffered, *of_disk, columns=columns)), plain)


def test_the_pixels_are_those_of_a_folder_of_images(listings: Path, tmp_path: Path) -> None:
    for number in range(COUNT):
        name = tmp_path / "photos" / ("bright" if number % 2 else "dark") / f"{number}.jpg"
        name.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(listings / "images" / f"{number}.jpg", name)
    words = ("dataset=folder", f"dataset.dir={tmp_path / 'photos'}", "transform.resize.size=[32,40]")
    plain = (*words, "transform=small_64", "load=plain", "cache=none", "model=emulated", "model.step_ms=0")
    with training_pipeline(plan_of(*plain, "dataset.eval_split=null", "dataset.split=train")) as pipeline:
        of_folder = {image.tobytes() for images, _ in pipeline.dataset.as_numpy_iterator() for image in images}
    of_rows = emulated(listings, "dataset.split=train", columns=PHOTO.replace(", random_flip", ""), target="class")
    found = {image.tobytes() for batch in batches_of(*of_rows, passes=1) for image in batch["photo"]}
    assert len(found) == COUNT
    assert found == of_folder


def test_two_images_are_cached_where_the_steps_of_each_are_cut(listings: Path, says: Says) -> None:
    other = "other: {of: path, steps: [read, decode, center_crop, {resize: [12, 12]}, scale_zero_one]}"
    both = f"{PHOTO}, {other}"
    plain = batches_of(*emulated(listings, "load.shuffle=buffer", columns=both))
    assert plain[0]["other"].shape == (8, 12, 12, 3)
    cached = emulated(listings, "cache=memory", "cache.at=resize", "load.shuffle=buffer", columns=both)
    assert are_same(batches_of(*cached), plain)
    says([(of.stage.path, [step.stage.path for step in of.steps]) for of in plan_of(*cached).train[:6]])


def keys_of(folder: Path, cache: Path, *others: str) -> set[str]:
    batches_of(
        *emulated(folder, "load.shuffle=buffer", "cache=disk", "cache.at=resize", f"cache.dir={cache}", *others),
        passes=1,
    )
    return {path.parent.name for path in cache.glob("*/cache.json")}


def test_a_cache_is_of_the_images_as_they_are(listings: Path, tmp_path: Path) -> None:
    folder, cache = tmp_path / "copy", tmp_path / "cache"
    shutil.copytree(listings, folder, ignore=shutil.ignore_patterns("kept"))
    before = keys_of(folder, cache)
    assert keys_of(listings, cache) == before
    shutil.copy(folder / "images" / "1.jpg", folder / "images" / "0.jpg")
    after = keys_of(folder, cache)
    assert len(before) == 1
    assert len(after) == 2


BROKEN = {
    "missing": ("images/5.jpg: no such file", "an image file"),
    "damaged": ("images/5.jpg: an image that can't be decoded: ", "a complete image file"),
    "a page": ("images/5.jpg: a web page or other text", "a complete image file"),
}


@pytest.mark.parametrize(("kind", "library"), [*((kind, "turbo") for kind in BROKEN), ("damaged", "tensorflow")])
def test_a_broken_image_is_told_by_row_and_path_or_skipped(
    listings: Path, tmp_path: Path, kind: str, library: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(listings, folder, ignore=shutil.ignore_patterns("kept"))
    path, (reason, expected) = folder / "images" / "5.jpg", BROKEN[kind]
    if kind == "missing":
        path.unlink()
    else:
        path.write_bytes(b"<html>" if kind == "a page" else path.read_bytes()[:100])
    words = emulated(
        folder, "load.shuffle=buffer", f"++transform.decode={{library: {library}, fast: false}}", target="class"
    )
    (tmp_path / "runs").mkdir()
    status, summary = run_here(tmp_path / "runs" / "raise", words)
    assert status == 1
    first, remedy = summary["error"].splitlines()
    assert first.startswith(f"{folder / 'listings.csv'}, row 5: found path {folder}/{reason}")
    assert first.endswith(f"; expected {expected}")
    skip = "set dataset.on_corrupt=skip to skip and count such records; etlrun doctor finds all"
    assert remedy == f"    -> a person decides: repair the row, or {skip}"
    summary = complete_here(tmp_path / "runs" / "skip", [*words, "dataset.on_corrupt=skip"])
    assert summary["skipped"] == {"train": 1, "validation": 0}


STEADY = PHOTO.replace("random_flip, ", "")


@pytest.mark.parametrize("columns", [STEADY, f"{STEADY}, {AREA}", f"{STEADY}, {STEADY.replace('photo', 'b')}, {AREA}"])
def test_cached_features_of_a_base_train_what_is_behind_it(listings: Path, tmp_path: Path, columns: str) -> None:
    others = ("load.shuffle=buffer", "model.trainable=false", "model.dropout=0.1", "trainer.seed=3")
    words = words_of(listings, *others, columns=columns)
    plain = complete_here(tmp_path / "plain", words)
    losses = [of["loss"] for of in plain["epochs"]] + [of["val_loss"] for of in plain["epochs"]]
    assert losses[0] != losses[1]
    disk = ("cache=disk", f"cache.dir={tmp_path / 'caches'}")
    for name, cache in {"memory": ("cache=memory",), "filled": disk, "read": disk}.items():
        cached = complete_here(tmp_path / name, [*words, *cache, "cache.at=features"])
        found = [of["loss"] for of in cached["epochs"]] + [of["val_loss"] for of in cached["epochs"]]
        assert found == pytest.approx(losses, rel=1e-3)


def test_doctor_names_the_rows_whose_images_cannot_be_decoded(listings: Path, tmp_path: Path, says: Says) -> None:
    shutil.copytree(listings, tmp_path / "own")
    (tmp_path / "own" / "images" / "3.jpg").unlink()
    whole = (tmp_path / "own" / "images" / "45.jpg").read_bytes()
    (tmp_path / "own" / "images" / "45.jpg").write_bytes(whole[: len(whole) // 2])
    plan = plan_of(*words_of(tmp_path / "own", target="class"))
    found = [of for of in diagnosed(plan, lambda *_: lambda _: None).findings if "image" in of.text]
    says([line for of in found for line in (of.text, *of.places)])


def test_a_broken_image_ends_a_prediction_with_its_row_and_path(once: Once) -> None:
    told = raised(
        EtlrunError, loaded_run(made_of("photos in rows", once).run).predict, [{"path": "none.jpg", "area": 1}]
    )
    assert told.startswith(f"rows, row 0: found path {Path.cwd() / 'none.jpg'}: no such file; expected an image")


FAULTS = {
    "photo: {of: path, steps: [decode, read]}": "transform.columns.photo.steps[1]: found read",
    "photo: {of: path, steps: [read, log1p]}": "transform.columns.photo.steps[1]: found log1p",
    "photo: {of: [path, area], steps: [read, decode]}": "transform.columns.photo.of: found path, area",
    "photo: {of: path, steps: [read, {resize: [0, 4]}]}": "transform.columns.photo.steps[1].size: found [0, 4]",
    "photo: {of: path, steps: [{resize: 8}, {resize: 4}]}": "transform.columns.photo.steps[1]: found resize again",
    "a: {of: path, steps: [{pad: 8, resize: 4}]}": "transform.columns.a.steps[0]: found pad, resize beside each other",
    "photo: {of: path, steps: [[log1p]]}": "transform.columns.photo.steps[0]: found ['log1p']",
    "a: {of: path, steps: [read, decode]}, b: {of: path, steps: [decode]}": "transform.columns.b: found path as image",
}


@pytest.mark.parametrize("columns", FAULTS)
def test_wrong_steps_are_refused_where_they_stand(listings: Path, columns: str) -> None:
    assert f"{FAULTS[columns]}; expected" in refusal_of(*words_of(listings, columns=columns))


def test_images_are_those_of_tables(listings: Path, says: Says) -> None:
    np.savez(listings / "arrays.npz", path=np.arange(4), price=np.arange(4.0))
    words = [word for word in words_of(listings) if not word.startswith(("dataset", "transform.columns"))]
    arrays = ("dataset=arrays", f"dataset.files={listings / 'arrays.npz'}", "dataset.target={price: number}")
    says(refusal_of(*arrays, *words, f"transform.columns='{{{PHOTO}}}'"))
    records = ("dataset=tfrecord", "dataset.files=none", "dataset.num_classes=2", f"transform.columns='{{{PHOTO}}}'")
    found = "transform.columns.photo: found an image of dataset=tfrecord; expected an image of dataset=table"
    assert found in refusal_of(*records, *words)


ALONE = {"features": ("cache=memory", "cache.at=features", "load.shuffle=buffer"), "mixed": ("load.mixup_alpha=0.2",)}


@pytest.mark.parametrize("case", ALONE)
def test_a_photo_alone_is_the_image_of_a_model(listings: Path, tmp_path: Path, case: str) -> None:
    columns = "image: {of: path, steps: [read, decode, {resize: [32, 32]}, scale_minus_one_one]}"
    words = [of for of in words_of(listings, *ALONE[case], columns=columns, target="class") if of[:5] != "model"]
    complete_here(tmp_path / "run", [*words, "model=keras_application", "model.name=MobileNetV2", "model.weights=null"])


@pytest.mark.parametrize(
    "columns", [f"{BYTES}, {AREA}", f"{PHOTO}, {PHOTO.replace('photo', 'b')}"], ids=["bytes", "two"]
)
def test_a_program_has_the_batches_of_the_run(listings: Path, tmp_path: Path, columns: str) -> None:
    words = emulated(listings, columns=columns)
    program = program_of(plan_of(*words), tmp_path)
    found = [{**inputs, "target": target} for inputs, target in program.train_dataset().as_numpy_iterator()]
    assert are_same(found, batches_of(*words))


def test_auto_leaves_images_to_the_config(listings: Path) -> None:
    words = [word for word in emulated(listings) if not word.startswith("transform.columns")]
    notes = plan_of(*words, "dataset.columns={path: image file}", "dataset.inputs=[path,area]").remarks
    assert "column `path` is not used: it holds images; to use it, name it in transform.columns with its steps" in notes
