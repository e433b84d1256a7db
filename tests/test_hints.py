from pathlib import Path

import pytest

from etlrun.cli.main import main
from etlrun.planning.hints import RENAMED
from etlrun.planning.schema import schema
from etlrun.stages import STAGES
from tests.configs import composed, refusal_of_config, refusal_of_plan, refusal_of_request, refusal_of_spec
from tests.own_configs import write

OF_FOLDERS = ("folder", "table", "arrays", "python", "text_folder")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("prefetch=4", "did you mean `load.prefetch`?"),
        ("cycle_length=4", "did you mean `extract.cycle_length`?"),
        (
            "num_parallel_calls=4",
            "did you mean `load.num_parallel_calls` or `extract.num_parallel_calls` or `transform.num_parallel_calls`?",
        ),
        ("batch_size=64", "did you mean `load.batch_size`?"),
        ("epochs=3", "did you mean `trainer.epochs`?"),
        ("lr=0.01", "did you mean `trainer.learning_rate`?"),
        ("learning_rate=0.01", "did you mean `trainer.learning_rate`?"),
        ("size=[96,96]", "did you mean `transform.resize.size`?"),
        ("seed=1", "did you mean `trainer.seed`?"),
        ("optimiser=sgd", "did you mean `trainer.optimizer`?"),
        ("steps=[decode]", "did you mean `transform.steps`?"),
        ("patience=3", "did you mean `trainer.early_stopping.patience`?"),
        ("cache.target=disk", "did you mean cache=disk?"),
        ("cahce=disk", "did you mean `cache`?"),
        ("resize.size=[96,96]", "did you mean `transform.resize`?"),
        ("load.epochs=3", "did you mean `trainer.epochs`?"),
        ("load.learningrate=0.1", "did you mean `trainer.learning_rate`?"),
        ("load.prefech=3", "did you mean `load.prefetch`?"),
        ("transform.size=[96,96]", "did you mean `transform.resize.size`?"),
        ("transform.resise.size=[96,96]", "did you mean `transform.resize`?"),
        ("step_ms=5", "did you mean `model.step_ms` with model=emulated or `trainer.step_ms` with trainer=drain?"),
        ("model.step_ms=5", "choose model=emulated, which has it"),
        (
            "dataset.dir=photos",
            f"choose {' or '.join(f'dataset={name}' for name in OF_FOLDERS)}, which has it",
        ),
        ("dataset.files=data/*.tfrecord", "choose dataset=tfrecord or dataset=table or dataset=arrays, which has it"),
        ("load.timeout_s=2", "did you mean `load.service.timeout_s`?"),
        ("repeats=3", "did you mean `sweep.repeats` with -m?"),
    ],
)
def test_an_unknown_key_is_told_with_the_one_that_was_meant(line: str, remedy: str) -> None:
    told = refusal_of_request(line).splitlines()
    key = line.split("=", maxsplit=1)[0].removesuffix(".size") if "res" in line else line.split("=", maxsplit=1)[0]
    assert told[0].startswith(f"{key}: found an unknown key; expected ")
    assert told[1:] == [f"    -> {remedy}"]


def test_an_old_key_leads_to_a_new_one_that_there_is() -> None:
    blocks = schema(STAGES)["definitions"]
    for old, new in RENAMED.items():
        block, _, name = new.rpartition(".")
        assert name in blocks[block]["properties"]
        assert old.rpartition(".")[2] not in blocks[block]["properties"]


@pytest.mark.parametrize(
    "words",
    [
        ("transform.decode.scaled=true",),
        ("+transform.decode.scaled=true",),
        ("transform={decode:{scaled:true}}",),
        ("transform.decode.scaled=true", "transform.decode.fast=true"),
    ],
)
def test_an_old_key_of_an_override_is_refused_with_the_new_one(words: tuple[str, ...]) -> None:
    assert refusal_of_request(*words) == (
        "transform.decode.scaled: found an unknown key; expected one of the keys library, fast\n"
        "    -> write `transform.decode.fast`, its name now"
    )


def test_an_old_key_of_a_reference_is_refused_with_the_new_one() -> None:
    told = refusal_of_request("transform.decode.fast='${transform.decode.scaled}'").splitlines()
    assert told[1:] == ["    -> write `${transform.decode.fast}`, its name now"]


def test_an_old_key_of_a_file_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine/experiment/coarse.yaml", "# @package _global_\n# Coarse.\nlogger:\n  experiment: ours\n")
    with pytest.raises(SystemExit):
        main(["check", "--config-dir", "mine"])
    assert capsys.readouterr().err == (
        "etlrun: 1 fault\n"
        "  mine/experiment/coarse.yaml:4: logger.experiment, in experiment=coarse: found an unknown key; expected "
        "no key here\n    -> write `logger.experiment_name`, its name now\n"
    )


@pytest.mark.parametrize("line", ["x.y=1", "verbosity=3", "cache.size=3", "transform.target=decode", "load.threads=2"])
def test_no_key_is_named_that_has_nothing_to_do_with_it(line: str) -> None:
    (told,) = refusal_of_request(line).splitlines()
    assert told.startswith(f"{line.split('=', maxsplit=1)[0].removesuffix('.y')}: found an unknown key; expected ")


def test_a_key_of_a_step_is_meant_where_it_is_and_then_that_of_a_step_in_the_lists() -> None:
    remedies = {
        "transform.random_hue.max_dlta=0.1": "did you mean `transform.random_hue.max_delta`?",
        "transform.lower=0.1": "did you mean `transform.random_contrast.lower` or `transform.random_saturation.lower`?",
        "max_delta=0.1": "did you mean `transform.random_brightness.max_delta` or `transform.random_hue.max_delta`?",
        "length=8": "did you mean `transform.cutout.length` with `cutout` in transform.steps?",
    }
    for line, remedy in remedies.items():
        words = "transform=augmented_224", "cache=none", f"++{line}"
        assert refusal_of_spec(*words).splitlines()[1:] == [f"    -> {remedy}"]


IMAGES = (
    "own images are read by dataset=folder dataset.dir=FOLDER, datasets of TFDS by dataset=tfds dataset.name=NAME, and "
    "TFRecord files by dataset=tfrecord"
)
TABLE = (
    "a list of images with labels is made a dataset by: etlrun prepare LIST.csv --name NAME; other tables are read "
    "by dataset=table, arrays of NumPy by dataset=arrays, and what a function returns by dataset=python"
)


PROGRAM = "for an optimizer of your own, print the program of a run, and change it there: etlrun eject > program.py"


def package(what: str, form: str = "function") -> str:
    return f"{what} of your own is a {form} in a package of yours, installed with pip: https://github.com/etlrun/etlrun/blob/main/docs/extending.md"


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("dataset=csv", TABLE),
        ("dataset=parquet", TABLE),
        ("dataset=imagenet", IMAGES),
        ("dataset=foldr", "did you mean dataset=folder?"),
        ("dataset=cifar_10", "did you mean dataset=cifar10?"),
        ("dataset=cifar100", "for a dataset of TFDS write dataset=tfds dataset.name=cifar100"),
        ("model=my_model", package("a model", "class")),
        ("model.name=my_model", package("a model", "class")),
        ("trainer.loss=focal", "did you mean `focal_crossentropy`?"),
        ("trainer.loss=hinge", package("a loss")),
        ("trainer.loss=crossentropi", "did you mean `crossentropy`?"),
        ("trainer.optimizer=lion", PROGRAM),
        ("trainer.optimizer=admw", "did you mean `adamw`?"),
        ("trainer.metrics=[my_metric]", package("a metric")),
        ("trainer.metrics=[acuracy]", "did you mean `accuracy`?"),
        ("transform.steps=[decode,mine]", package("a step", "class")),
    ],
)
def test_a_name_that_nothing_has_is_told_with_the_way_to_get_it(line: str, remedy: str) -> None:
    assert refusal_of_request(line).splitlines()[1:] == [f"    -> {remedy}"]


OTHER_KINDS = {
    "uint8 28x28": "declare it as an image if its values are stored so: `uint8 28x28x1` in dataset.features",
    "float32 28": "leave the steps for images out; features of other kinds are for model=emulated and trainer=drain",
    "text": "declare it as `image` in dataset.features if it is an encoded file; other text is for model=emulated and "
    "trainer=drain",
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_feature_of_another_kind_is_not_told_to_be_decoded(kind: str) -> None:
    words = "dataset=tfds", "dataset.name=x", f"dataset.features={{image: {kind}}}", "cache=none"
    faults = refusal_of_plan(*words).splitlines()
    assert [line for line in faults if line.startswith("transform.")]
    assert set(faults[1::2]) == {f"    -> {OTHER_KINDS[kind]}"}


def test_an_image_of_another_name_is_told_its_key() -> None:
    words = "dataset=tfds", "dataset.name=x", "dataset.features={photo: image}", "cache=none"
    first, remedy, *_ = refusal_of_plan(*words).splitlines()
    assert first == (
        "transform.decode: found encoded image, label before it; expected a feature 'image'; known are label, photo"
    )
    assert remedy == "    -> leave dataset.features out, and set dataset.image_key=photo"


def test_the_name_of_a_column_is_told_its_form() -> None:
    words = "experiment=table", "dataset.files=houses.csv", "dataset.target=price", "dataset.inputs=area"
    assert refusal_of_spec(*words).splitlines()[1::2] == [
        "    -> write 'dataset.target={price: number}' or another kind",
        "    -> write dataset.inputs=[area]",
    ]


def test_a_dataset_of_a_package_that_is_not_installed_is_one_fault() -> None:
    config = {**composed(), "dataset": {"name": "lined", "file": "points.csv", "num_classes": 2}}
    fault, remedy = refusal_of_config(config).splitlines()
    known = "folder, tfrecord, table, arrays, python, text_folder"
    expected = f"one of {known}, or a dataset of TFDS with the keys of dataset=tfds"
    assert fault == f"dataset.name: found 'lined'; expected {expected}"
    assert (
        remedy
        == "    -> a dataset of your own is a class in a package of yours, installed with pip: https://github.com/etlrun/etlrun/blob/main/docs/extending.md"
    )
