"""`etlrun costs`: what it shows of runs, and the file that it writes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import costs, diff
from etlrun.review import costs_of_runs
from etlrun.system.errors import ConfigError, WorldError
from tests.costs import CACHED, HERE, OTHER_MACHINE, measured
from tests.own import write_pets
from tests.own_configs import write
from tests.repository import Repository

FILE = "mine/etlrun-costs.json"


@pytest.fixture
def told(mine: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """What `etlrun costs` prints on the runs of an experiment with a cache on disk."""
    write(mine / "experiment" / "cached.yaml", CACHED)

    def tell(*words: str) -> list[str]:
        costs.main(["--config-dir", "mine", *words])
        return capsys.readouterr().out.splitlines()

    return tell


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(FILE).read_text(encoding="utf-8"))["measured"]
    return found


def cached(name: str, rate: float, **values: Any) -> None:
    measured(Path("outputs", name), Path("mine"), ["experiment=cached"], rate, **values)


def test_measured_experiments_are_shown_and_written(told: Any) -> None:
    cached("1", 500.0, fill_s=2.0)
    cached("2", 300.0, machine=OTHER_MACHINE)
    table = [
        "experiments  machine                        runs  examples/s    AU  fill s per 1,000  peak MB  cache MB",
        "cached       AMD EPYC, 2 cores                 1         500  0.50            2.0833    1,000      14.7",
        "cached       Tesla T4, Intel Xeon, 8 cores     1         300  0.30                      1,000      14.7",
        "not measured: other, small",
    ]
    assert [line.rstrip() for line in told()] == table
    assert not Path(FILE).exists()
    assert [line.rstrip() for line in told("outputs", "--write")] == [*table, f"wrote {FILE}: 2 entries"]
    assert [(of["experiment"], of["machine"], of["examples_per_s"]) for of in entries()] == [
        ("cached", HERE, [500.0]),
        ("cached", OTHER_MACHINE, [300.0]),
    ]
    before = Path(FILE).read_bytes()
    assert len(before.splitlines()) == len(entries()) + 5
    told("--write")
    assert Path(FILE).read_bytes() == before


def test_entries_of_other_machines_stay_and_those_of_old_plans_go(told: Any, mine: Path) -> None:
    cached("1", 500.0)
    cached("2", 300.0, machine=OTHER_MACHINE)
    told("--write")
    shutil.rmtree("outputs")
    cached("3", 510.0)
    cached("4", 520.0)
    assert told("--write")[-1] == f"wrote {FILE}: 2 entries"
    assert [(of["machine"], of["examples_per_s"]) for of in entries()] == [
        (HERE, [520.0, 510.0]),
        (OTHER_MACHINE, [300.0]),
    ]
    write(mine / "experiment" / "cached.yaml", f"{CACHED}load: {{batch_size: 8}}\n")
    cached("5", 700.0)
    assert told("--write")[-1] == f"wrote {FILE}: 1 entry, and 2 of plans that no experiment has now are gone"
    assert [of["examples_per_s"] for of in entries()] == [[700.0]]


def test_experiments_of_one_plan_have_one_entry(told: Any, mine: Path) -> None:
    write(mine / "experiment" / "again.yaml", CACHED.replace("epochs: 3", "epochs: 9, seed: 3"))
    cached("1", 500.0)
    assert told("--write")[1].startswith("again, cached  AMD EPYC, 2 cores")
    assert [of["experiment"] for of in entries()] == ["again"]


@pytest.mark.parametrize("values", [{"in_flight": 2}, {"config": "load: [\n"}])
def test_runs_that_say_nothing_are_named(values: dict[str, Any], told: Any) -> None:
    broken = values.pop("config", None)
    cached("1", 500.0, **values)
    if broken is not None:
        write(Path("outputs", "1", "config.yaml"), broken)
    assert told() == ["not measured: cached, other, small", "left out: outputs/1"]


@pytest.mark.parametrize(
    ("values", "rates"),
    [
        ({"status": "failed"}, None),
        ({"only_fills": True, "fill_s": 2.0}, []),
        ({"epochs": [{"examples": 960, "wall_s": 2.0, "examples_per_s": 480.0}], "fill_s": 2.0}, []),
    ],
)
def test_only_runs_that_train_as_later_ones_have_a_rate(values: Any, rates: list[float] | None, told: Any) -> None:
    cached("1", 500.0, **values)
    if rates is None:
        assert told() == ["not measured: cached, other, small"]
    else:
        told("--write")
        assert [of.get("examples_per_s", []) for of in entries()] == [rates]


def test_only_the_newest_runs_count(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs_of_runs, "MOST_RUNS", 2)
    for number in (2, 3, 1):
        cached(str(number), 500.0 + number, created_s=float(number))
    told("--write")
    assert [of["examples_per_s"] for of in entries()] == [[503.0, 502.0]]


def test_without_runs_nothing_is_written(told: Any) -> None:
    Path("outputs").mkdir()
    with pytest.raises(WorldError) as caught:
        told("--write")
    assert str(caught.value) == (
        "outputs: found no completed run of an experiment as it is now; expected measured costs to write\n"
        "    -> run an experiment alone, such as etlrun experiment=NAME, and repeat the command"
    )
    assert not Path(FILE).exists()
    with pytest.raises(WorldError) as caught:
        told("nowhere")
    assert str(caught.value) == (
        "nowhere: found no such folder; expected a folder of runs\n"
        "    -> pass the folder that the runs have in hydra.run.dir"
    )


def test_experiments_with_faults_are_refused(told: Any, mine: Path) -> None:
    write(mine / "experiment" / "small.yaml", "# @package _global_\n# Wrong.\ntrainer: {epochs: 0}\n")
    cached("1", 500.0)
    with pytest.raises(ConfigError) as caught:
        told("--write")
    assert str(caught.value) == ("mine/experiment/small.yaml:3: trainer.epochs: found 0; expected a positive integer")
    assert not Path(FILE).exists()


def test_a_link_leads_to_the_file(told: Any) -> None:
    cached("1", 500.0)
    Path("shared.json").write_text('{"format": 1, "measured": []}', encoding="utf-8")
    Path(FILE).symlink_to("../shared.json")
    told("--write")
    assert Path(FILE).is_symlink()
    assert len(entries()) == 1
    Path("shared.json").unlink()
    with pytest.raises(ConfigError) as caught:
        told("--write")
    assert str(caught.value) == f"{FILE}: found No such file or directory; expected a readable file or folder"


def test_what_a_run_was_given_on_the_command_line_is_no_other_plan(
    told: Any, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CACHED.replace("  - _self_", "  - override /dataset: folder\n  - _self_")
    write(mine / "experiment" / "cached.yaml", text.replace("{data_dir: /nowhere}", "{dir: '???'}"))
    for number, photos in enumerate(("pets", "more/pets")):
        write_pets(Path(photos))
        words = ["experiment=cached", f"dataset.dir={photos}"]
        measured(Path("outputs", str(number)), mine, words, 500.0 + number, fill_s=4.0)
    assert told("--write")[-1] == f"wrote {FILE}: 1 entry"
    assert [sorted(of["examples_per_s"]) for of in entries()] == [[500.0, 501.0]]
    shutil.rmtree("outputs")
    repository = Repository(Path.cwd(), "mine")
    repository.replace("experiment/cached.yaml", "trainer:", "transform: {resize: {antialias: true}}\ntrainer:")
    diff.main(["HEAD", "--config-dir", "mine"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert f"refills 15 MB in 2 caches on disk in 5 s, by 2 runs of the old plan on {HERE}" in lines
