"""Datasets of one's own and experiments on them: a folder of images, TFRecord files, and CIFAR-10."""

import os
import shutil
from pathlib import Path

import pytest

from etlrun.graph.build import Pipeline
from etlrun.graph.disk import keepers_of
from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run.session import contexts_of, prepared
from etlrun.sources.base import open_source
from etlrun.sources.corrupt import corrupt_records
from etlrun.system.errors import EtlrunError
from tests.configs import raised
from tests.golden import Says
from tests.own import PETS, batches, image, of_folder, of_records, records
from tests.pipelines import as_bytes
from tests.programs import program_of
from tests.runs import complete_here


def test_a_folder_is_trained_by_its_experiment(folder: Path, tmp_path: Path) -> None:
    own = ["experiment=own", f"dataset.dir='{folder}'", "model.weights=null", "trainer.epochs=1"]
    small = ["transform.resize.size=[32,32]", f"cache.dir={tmp_path / 'caches'}", "load.batch_size=8"]
    summary = complete_here(tmp_path / "run", [*own, *small])
    assert summary["dataset"]["name"] == str(folder)
    assert summary["dataset"]["examples"] == {"train": 32, "validation": 8}


def digest(plan: Plan) -> str:
    total = Digest()
    for images, labels in Pipeline(plan.train, contexts_of(plan, open_source(plan.spec.dataset))["train"]).dataset:
        total.add(images.numpy(), labels.numpy())
    return str(total.taken())


def test_each_image_of_a_folder_is_an_example_of_its_class(folder: Path) -> None:
    source = open_source(of_folder(folder).spec.dataset)
    split, parse = source.split("train", "dataset.split"), source.parser()
    found = [parse(record) for shard in split.shards for record in split.read(shard.path, shard.skip, shard.take)]
    labels = {example["image"].numpy(): int(example["label"]) for example in found}
    assert labels == {image(number): number % 2 for number in range(40)}
    assert (source.class_names, source.num_classes, dict(source.counts)) == (PETS, 2, {"train": 40})


def test_slices_of_a_folder_are_disjoint_and_hold_all_classes(folder: Path) -> None:
    plan = of_folder(folder, "dataset.split='train[:75%]'", "dataset.eval_split='train[75%:]'")
    contexts = contexts_of(plan, open_source(plan.spec.dataset))
    train, validation = (set(contexts[name].split.paths) for name in ("train", "validation"))
    assert (len(train), len(validation), train & validation) == (30, 10, set())
    assert {Path(path).parent.name for path in validation} == set(PETS)


def test_folders_of_splits_are_splits(folder: Path) -> None:
    for split, part in (("train", range(30)), ("validation", range(30, 40))):
        for number in part:
            place = folder.parent / "divided" / split / PETS[number % 2] / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(image(number))
    plan = of_folder(folder.parent / "divided", "dataset.split=train", "dataset.eval_split=validation")
    assert dict(open_source(plan.spec.dataset).counts) == {"train": 30, "validation": 10}
    assert len(batches(plan)) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("extract=sequential", "cache=none"),
        ("extract.cycle_length=all", "extract.block_length=2", "extract.shuffle_files=true", "cache=none"),
        ("cache=memory", "cache.at=source"),
        ("cache=none", "transform.decode.library=tensorflow"),
        ("cache=none", "extract=sequential", "load.shuffle=full"),
        ("cache=disk", "extract=sequential", "load.shuffle=full"),
        ("cache=none", "extract=sequential", "load.shuffle=full", "load.sample=uniform_by_class"),
        ("cache=none", "dataset.on_corrupt=skip"),
    ],
)  # fmt: skip
def test_a_program_reads_a_folder_like_the_run(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    plan = of_folder(folder, f"cache.dir='{tmp_path / 'caches'}'", *words)
    program = program_of(plan, tmp_path)
    assert as_bytes(program.train_dataset().take(16)) == batches(plan, passes=2)
    assert as_bytes(program.validation_dataset()) == batches(plan, name="validation")


def test_a_program_raises_where_its_folder_is_gone(folder: Path, tmp_path: Path) -> None:
    program = program_of(of_folder(folder), tmp_path)
    shutil.move(folder, tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=str(folder)):
        program.images()


def test_a_cache_of_a_folder_is_valid_for_its_content_alone(folder: Path, tmp_path: Path) -> None:
    def key(at: Path) -> str:
        plan = of_folder(at, "cache=disk", f"cache.dir='{tmp_path / 'caches'}'")
        contexts = contexts_of(plan, open_source(plan.spec.dataset))
        return keepers_of(plan, contexts, {}, lambda _: None)["train"].key

    before = key(folder)
    shutil.copytree(folder, folder.parent / "copy")
    assert key(folder.parent / "copy") == before
    images = sorted((folder.parent / "copy" / PETS[0]).iterdir())
    images[0].write_bytes(image(99))
    changed = key(folder.parent / "copy")
    assert changed != before
    images[1].rename(folder.parent / "copy" / PETS[1] / images[1].name)
    assert key(folder.parent / "copy") not in (before, changed)


def test_a_file_that_changes_during_a_run_is_noticed(folder: Path) -> None:
    content = open_source(of_folder(folder).spec.dataset).split("train", "dataset.split").content
    assert content.digest is not None
    path = folder / PETS[0] / "no 0.jpg"
    os.utime(path, ns=(1, 1))
    assert content.changed() is None
    path.write_bytes(image(77))
    assert content.changed() == str(path)


def test_a_changed_file_is_noticed_behind_one_that_was_only_touched(folder: Path) -> None:
    content = open_source(of_folder(folder).spec.dataset).split("train", "dataset.split").content
    assert content.digest is not None
    for number in range(2):  # whichever image comes first, one of both rounds has it touched
        path = folder / PETS[number] / f"no {number}.jpg"
        for other in {*folder.glob("*/*.jpg")} - {path}:
            os.utime(other, ns=(1, number + 1))
        path.write_bytes(image(77))
        assert content.changed() == str(path)
        path.write_bytes(image(number))


def test_an_image_may_have_any_name(folder: Path) -> None:
    names = [b"line\nbreak.jpg", b"latin\xe9.jpg", "日本.jpg".encode()]
    for number, name in enumerate(names):
        path = folder / PETS[0] / f"no {2 * number}.jpg"
        path.rename(path.with_name(os.fsdecode(name)))
    split = open_source(of_folder(folder, "dataset.split=train").spec.dataset).split("train", "dataset.split")
    assert split.content.digest is not None
    assert {os.fsencode(Path(path).name) for path in split.paths} >= {*names}
    assert len(batches(of_folder(folder, "dataset.split=train", "cache=none"))) == 10


def test_a_broken_image_is_named_by_its_file(folder: Path) -> None:
    path = folder / PETS[1] / "no 1.jpg"
    path.write_bytes(image(1)[:200])
    source = open_source(of_folder(folder).spec.dataset)
    (corrupt,) = corrupt_records(source.split("train", "dataset.split"))
    assert corrupt.where == str(path)
    assert corrupt.reason.startswith("an image that can't be decoded: ")
    assert len(batches(of_folder(folder, "dataset.on_corrupt=skip", "dataset.split=train", "cache=none"))) == 10


def test_a_missing_image_ends_a_search_for_broken_ones(folder: Path) -> None:
    source = open_source(of_folder(folder).spec.dataset)
    split = source.split("train", "dataset.split")
    path = folder / PETS[1] / "no 1.jpg"
    path.unlink()
    told = raised(EtlrunError, list, corrupt_records(split))
    assert told == (f"{path}: found no such file; expected an image of {folder}\n    -> restore the file")
    assert split.content.digest is None


@pytest.mark.slow
def test_a_program_reads_tfrecords_like_the_run(tmp_path: Path) -> None:
    for name, numbers in (("a.tfrecord", range(13)), ("b.tfrecord", range(13, 40))):
        records(tmp_path, name, numbers)
    plan = of_records(tmp_path, "cache=memory", "extract=sequential")
    program = program_of(plan, tmp_path)
    assert as_bytes(program.train_dataset().take(16)) == batches(plan, passes=2)
    assert as_bytes(program.validation_dataset()) == batches(plan, name="validation")


def test_tfrecords_have_splits_of_their_own(tmp_path: Path) -> None:
    records(tmp_path, "train-0.tfrecord", range(8))
    records(tmp_path, "val-0.tfrecord", range(8, 12))
    files = f"dataset.files={{train: '{tmp_path}/train-*.tfrecord', validation: '{tmp_path}/val-*.tfrecord'}}"
    plan = of_records(tmp_path, files, "dataset.split=train", "dataset.eval_split=validation", "cache=none")
    assert dict(open_source(plan.spec.dataset).counts) == {"train": 8, "validation": 4}
    assert (len(batches(plan)), len(batches(plan, name="validation"))) == (2, 1)


def test_tfrecords_that_do_not_fit_are_refused(tmp_path: Path, says: Says) -> None:
    records(tmp_path, "a.tfrecord", range(4))
    says(raised(EtlrunError, open_source, of_records(tmp_path, "dataset.image_key=picture").spec.dataset))
    says(raised(EtlrunError, open_source, of_records(tmp_path / "none").spec.dataset))


def test_what_only_tfds_does_is_refused(folder: Path, says: Says) -> None:
    says(raised(EtlrunError, of_folder, folder, "extract=tfds"))
    says(raised(EtlrunError, of_records, folder, "dataset.num_classes=null"))


def test_files_that_are_left_out_and_examples_in_both_splits_are_noted(
    folder: Path, tmp_path: Path, says: Says
) -> None:
    for name in ("a.xml", "b.txt"):
        (folder / PETS[0] / name).write_bytes(b"")
    plan = of_folder(folder, "dataset.split='train[:50%]'", "dataset.eval_split='train[45%:55%]+train[:1]'")
    record = Record(tmp_path)
    prepared(plan, record, open_source(plan.spec.dataset))
    says(list(record.summary.remarks[:2]))


def test_shared_examples_of_files_are_counted(tmp_path: Path) -> None:
    records(tmp_path, "a.tfrecord", range(40))
    source = open_source(of_records(tmp_path).spec.dataset)
    names = "train[:20]", "train[5:]+train[:3]", "train[20:]", "train[:34%]"
    train, others, rest, third = (source.split(name, "dataset.split") for name in names)
    assert (train.shared(others), train.shared(rest), third.num_examples) == (15 + 3, 0, 14)
    assert source.labels_of(train) is source.labels_of(train)
