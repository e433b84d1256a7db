"""What `verify` and `diff --show` say of data that differ: a table of figures, of what a run kept, or of revisions."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from etlrun.config.request import Request
from etlrun.config.request import composed as composed_by
from etlrun.datasets.examine.profile import profiled
from etlrun.record.record import Record
from etlrun.review.data import changes
from etlrun.run import run
from etlrun.sources.base import open_source
from tests.configs import plan_of
from tests.golden import Says
from tests.own import image
from tests.quick import quick_probes
from tests.repository import Repository

TABLE = """\
# @package _global_
# Houses.
defaults: [override /dataset: table, override /transform: columns, override /model: emulated, _self_]
dataset: {files: "data/*.csv", target: {kind: class}, split: train, eval_split: null}
model: {step_ms: 0, eval_step_ms: 0}
load: {batch_size: 4}
trainer: {epochs: 1}
"""
HEAD = "kind,price,note,at\n"
OLD = HEAD + "".join(f"{'ab'[n % 2]},{n}.5,word {n % 7} {n},2026-01-{n + 1:02}\n" for n in range(20))
NEW = HEAD + "".join(
    f"{'abc'[n % 3]},{f'{n + 5}.5' * (n % 5 > 0)},many more words {n % 7} {n},2026-02-{n + 1:02}\n" for n in range(15)
)


@pytest.fixture
def houses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = tmp_path / "repository"
    made.mkdir()
    monkeypatch.chdir(made)
    repository = Repository(made, "conf")
    repository.write("experiment/houses.yaml", TABLE)
    repository.write("../data/a.csv", OLD)
    repository.write("../.gitignore", "outputs\n")
    repository.commit("The beginning")
    return repository


def run_of(*words: str) -> str:
    """The folder of a run of a config in `conf`."""
    folder = Path("outputs/run")
    Record.create(folder, composed_by(Request(overrides=[*words], config_dir="conf")), [*words], config_dir="conf")
    with pytest.MonkeyPatch.context() as patch:
        quick_probes(patch)
        assert run.run(folder) == 0
    return str(folder)


def figures(text: str) -> str:
    """The table in what is printed."""
    _, _, below = text.partition("  data  ")
    return f"  data  {below}"


def test_a_table_that_changed_between_revisions_is_told_in_figures(houses: Repository, told: Any, says: Says) -> None:
    houses.write("../data/a.csv", NEW)
    houses.commit("Other rows")
    text = told("HEAD~1", "HEAD", "--config-dir", "conf", "--show", "images")
    says(figures(text).partition("  images")[0])
    comment = told("HEAD~1", "HEAD", "--config-dir", "conf", "--show", "images", "--format", "markdown")
    assert "What differs in the data" in comment
    assert "| train | price: missing | none | 3 (20.0%) |" in comment
    assert "What differs" not in told("HEAD~1", "HEAD", "--config-dir", "conf", "--format", "markdown")


def test_a_run_is_compared_with_the_figures_that_it_kept(houses: Repository, verified: Any, says: Says) -> None:
    folder = run_of("experiment=houses")
    assert verified(folder).endswith("no difference\n")
    houses.write("../data/a.csv", NEW)
    says(figures(verified(folder, status=1)))
    (Path(folder) / "data.json").unlink()
    says(figures(verified(folder, status=1)))
    houses.write("../data/a.csv", OLD)
    assert verified(folder).endswith("no difference\n")
    assert "not kept" not in verified(folder, "experiment=houses load.prefetch=3", "--config-dir", "conf")


PHOTOS = """\
# @package _global_
# Pets.
defaults: [override /dataset: folder, override /model: emulated, override /cache: none, _self_]
dataset: {dir: photos, eval_split: null}
model: {step_ms: 0, eval_step_ms: 0}
load: {batch_size: 4}
transform: {resize: {size: [8, 8]}}
trainer: {epochs: 1}
"""


def test_a_class_folder_that_was_added_since_a_run_is_a_change_of_the_data(
    houses: Repository, verified: Any, says: Says
) -> None:
    houses.write("experiment/pets.yaml", PHOTOS)
    for number in range(12):
        path = Path("photos", ("cat", "dog")[number % 2], f"{number}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    folder = run_of("experiment=pets")
    assert verified(folder).endswith("no difference\n")
    shutil.copytree("photos/dog", "photos/bird")
    text = verified(folder)
    says(text.splitlines()[1])
    assert text.splitlines()[2].endswith("data, from the dataset on, other records than were read")
    says([line for line in text.splitlines() if "label" in line or "examples" in line])
    found = json.loads(verified(folder, "--format", "json"))
    assert (found["kinds"], found["changed"]) == (["data"], True)
    assert found["experiments"][0]["data"][0]["figure"] == "label = bird"
    (Path(folder) / "data.json").unlink()
    assert "  train  columns   not kept  2\n" in verified(folder)
    shutil.rmtree("photos/bird")
    Path("photos/dog/1.jpg").write_bytes(image(1)[:-2] + b"\xff\xd9")
    Path("photos/cat/0.jpg").write_bytes(image(50))
    assert "other records than were read" in verified(folder)
    shutil.rmtree("photos/dog")
    says(verified(folder).splitlines()[1:])
    assert "of one class, cat" in json.loads(verified(folder, "--format", "json"))["experiments"][0]["unread"]


def test_what_a_run_has_learned_and_the_data_lack_is_why_its_side_is_not_read(
    houses: Repository, verified: Any, told: Any, says: Says
) -> None:
    folder = run_of("experiment=houses")
    houses.write("../data/a.csv", OLD.replace("price", "cost", 1))
    says([line for line in verified(folder, status=1).splitlines() if "not read" in line])
    says(told(folder, "--show", "images").splitlines()[-1])
    houses.write("../data/a.csv", OLD.replace("\na,", "\nc,"))
    says([line for line in verified(folder, status=1).splitlines() if "not read" in line])
    houses.write("../data/a.csv", OLD.replace("3.5", ""))
    says([line for line in verified(folder).splitlines() if "read" in line])


@pytest.mark.usefixtures("houses")
def test_figures_are_read_once_for_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("experiment=table", "dataset.files=data/*.csv", "dataset.target={kind: class}")
    source = open_source(plan.spec.dataset)
    split = source.split("train", "dataset.split")
    first = profiled(source, split)
    monkeypatch.setattr("etlrun.datasets.examine.profile._column", lambda *_: pytest.fail("it was read again"))
    assert profiled(source, split) == first


def column(kind: str, *quantiles: float) -> dict[str, Any]:
    return {"type": kind, "rows": 10, "missing": 0, "counts": {}, "quantiles": quantiles, "lengths": []}


def train(**columns: dict[str, Any]) -> dict[str, Any]:
    return {"train": {"examples": 10, "digest": None, "columns": columns}}


def test_those_that_change_most_come_first() -> None:
    def of(shift: float) -> dict[str, Any]:
        return train(**{f"c{n}": column("number", *(k + shift * n for k in range(5))) for n in range(30)})

    found = changes(of(0.0), of(0.1))
    assert [change.figure.partition(":")[0] for change in found] == [f"c{n}" for n in range(29, 0, -1)]


def test_numbers_that_look_alike_are_left_out_and_times_are_written_as_such() -> None:
    def of(kind: str, last: float) -> dict[str, Any]:
        return train(a=column(kind, 1.0, 1.0, 1.0, 1.0, last))

    assert changes(of("number", 2.00001), of("number", 2.00002)) == ()
    (change,) = changes(of("timestamp", 0.0), of("timestamp", 86_400e6))
    assert change.after.endswith(", 1970-01-02")
    assert changes(of("integer", 3.0), of("number", 3.0)) == ()
    (change,) = changes(of("number", 3.0), of("text", 3.0))
    assert (change.figure, change.before, change.after) == ("a", "number", "text")
