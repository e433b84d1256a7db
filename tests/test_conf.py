import pytest

from etlrun.stages import STAGES
from etlrun.stages.base import Stage, field_metadata, selected
from etlrun.stages.dataset import dataset_type
from etlrun.stages.load import Load, Service
from etlrun.stages.measure import Measure
from etlrun.stages.step import Map
from etlrun.stages.trainer import EarlyStopping, Schedule
from tests.configs import CONF, EXPERIMENTS, composed, yaml_files

OPTIONS = [tuple(path.removesuffix(".yaml").split("/")) for path in yaml_files() if "/" in path]
NAMED = [(group, option) for group, option in OPTIONS if group in STAGES and group != "transform"]


def text_of(path: str) -> str:
    return (CONF / path).read_text(encoding="utf-8")


def header_of(path: str) -> list[str]:
    """The comment lines with which a file begins."""
    lines = text_of(path).splitlines()
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]


def fields(stage: type[Stage]) -> set[str]:
    return set(field_metadata(stage))


def options_of(group: str) -> list[str]:
    return [option for name, option in OPTIONS if name == group]


@pytest.mark.parametrize("path", yaml_files())
def test_a_file_begins_with_a_comment(path: str) -> None:
    assert text_of(path).startswith("# ")


@pytest.mark.parametrize("path", yaml_files())
def test_a_config_names_stages_and_never_python(path: str) -> None:
    targets = [line.strip() for line in text_of(path).splitlines() if "_target_" in line]
    assert targets == (["_target_: etlrun.cli.launch.SweepTable"] if path == "config.yaml" else [])


def test_hydra_alone_has_a_target() -> None:
    project, _, hydra = text_of("config.yaml").partition("\nhydra:\n")
    assert "_target_" not in project
    assert hydra.count("_target_") == 1
    assert all(line.startswith(" ") for line in hydra.splitlines() if line)


def stage_of(group: str, name: str) -> type[Stage]:
    """The stage that a name selects; an image model of Keras has its own."""
    return STAGES[group][selected(STAGES[group], name) or ""]


@pytest.mark.parametrize(("group", "option"), NAMED)
def test_an_option_names_every_field_of_its_stage(group: str, option: str) -> None:
    block = composed(f"{group}={option}")[group]
    assert block.keys() == {"name"} | fields(stage_of(group, block["name"]))


def test_an_option_names_every_field_of_early_stopping() -> None:
    assert composed("trainer=fit")["trainer"]["early_stopping"].keys() == fields(EarlyStopping)


def test_an_option_names_every_field_of_a_schedule() -> None:
    assert composed("trainer=fit")["trainer"]["schedule"].keys() == fields(Schedule)


@pytest.mark.parametrize("option", options_of("measure"))
def test_a_measure_option_names_every_field(option: str) -> None:
    assert composed(f"measure={option}")["measure"].keys() == fields(Measure)


@pytest.mark.parametrize("option", options_of("dataset"))
def test_a_dataset_option_names_every_field(option: str) -> None:
    missing = {"tfds": ["name"], "folder": ["dir"], "tfrecord": ["files", "num_classes"]}
    missing |= {
        "table": ["files", "target"],
        "arrays": ["files", "target"],
        "python": ["of", "target"],
        "text_folder": ["folder"],
    }
    block = composed(f"dataset={option}", *(f"dataset.{key}=1" for key in missing.get(option, [])))["dataset"]
    assert block.keys() == fields(dataset_type(block["name"])) - {"known"}  # which reading finds


@pytest.mark.parametrize("option", options_of("load"))
def test_a_load_option_names_every_field(option: str) -> None:
    assert composed(f"load={option}")["load"].keys() == fields(Load)


def test_an_option_names_every_field_of_a_service() -> None:
    served = ("load=service", "load.service.address=cpu1:5050", "load.service.trusted_network=true")
    assert composed(*served)["load"]["service"].keys() == fields(Service)


@pytest.mark.parametrize("option", options_of("transform"))
def test_a_transform_option_names_every_field_of_its_map_and_of_its_steps(option: str) -> None:
    block = composed(f"transform={option}")["transform"]
    steps = STAGES["transform"]
    named = {step for step in (*block["steps"], *block["eval_steps"]) if fields(steps[step])}
    columns = {"columns"} & block.keys()  # of rows alone
    assert block.keys() == fields(Map) | {"eval_steps"} | named | columns
    assert {step: set(block[step]) for step in named} == {step: fields(steps[step]) for step in named}


@pytest.mark.parametrize("group", sorted(STAGES.keys() - {"transform"}))
def test_every_stage_has_an_option(group: str) -> None:
    named = {stage_of(group, composed(f"{group}={option}")[group]["name"]) for option in options_of(group)}
    assert named == {*STAGES[group].values()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_tells_its_command_and_its_costs(name: str) -> None:
    header = header_of(f"experiment/{name}.yaml")
    assert header[0] == "# @package _global_"
    assert header[1].startswith("# ")
    assert f"python -m etlrun experiment={name}" in header[1]
    assert [line for line in header if line.startswith("# Costs")]
