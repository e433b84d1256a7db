"""Costs of a change in a review, by what runs have measured."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli import check, costs
from etlrun.config.folders import config_dir
from etlrun.review.costs_file import read
from etlrun.review.costs_of_runs import costs_of_runs
from etlrun.system.errors import ConfigError
from tests.costs import CACHED, HERE, OTHER_MACHINE, measured
from tests.repository import Repository

BASE = ("--config-dir", "mine")
FILE = "mine/etlrun-costs.json"
SMOOTH = "transform: {resize: {antialias: true}}\n"
OF_OLD = f"refills 15 MB in 2 caches on disk in 2.5 s (2.4 to 3), by 3 runs of the old plan on {HERE}"
REMEDY = "resolve or delete it, and write it with etlrun costs --write"
UNTOLD = "how long that takes is unknown, since no run that fills such a cache was measured"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an experiment that has a cache on disk, of which three runs are measured and their costs committed."""
    made = Repository.small(tmp_path_factory.mktemp("costs") / "repository")
    made.write("experiment/cached.yaml", CACHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.folder)
        for seed, (rate, fill_s) in enumerate([(500.0, 2.0), (510.0, 2.4), (490.0, 1.9)]):
            run(made, ["experiment=cached", f"trainer.seed={seed}"], rate, fill_s=fill_s)
        write_costs()
    made.commit("Measured")
    return made.folder


@pytest.fixture
def repository(committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A copy of that."""
    monkeypatch.chdir(shutil.copytree(committed, tmp_path / "repository"))
    return Repository(Path.cwd(), "mine")


def run(repository: Repository, words: list[str], rate: float, **values: Any) -> None:
    number = len([*repository.folder.glob("outputs/*")])
    measured(repository.folder / "outputs" / str(number), repository.configs, words, rate, **values)


def write_costs() -> None:
    costs.main([*BASE, "--write", "outputs"])


def smooth(repository: Repository, name: str = "cached") -> None:
    repository.write(f"experiment/{name}.yaml", CACHED + SMOOTH)


@pytest.fixture
def lines(told: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """The lines of a diff on costs: below the differences and the caches, and the sums above all."""

    def tell(*words: str, status: int = 0) -> list[str]:
        capsys.readouterr()
        found = told(*words, *BASE, status=status).splitlines()
        marks = ("cost:", "refills", "caches on", "expected", "each run", "the cache on", FILE, "mine/etlrun-policy")
        return [line.strip() for line in found if line.strip().startswith(marks)]

    return tell


def test_a_refill_is_estimated_by_the_runs_of_the_old_plan(repository: Repository, lines: Any) -> None:
    smooth(repository)
    assert lines("HEAD") == [
        OF_OLD,
        "caches on disk: 15 MB -> 15 MB; the old ones stay until etlrun cache gc removes them",
        (
            f"expected on {HERE}: examples/s 500 (490 to 510, 3 runs) -> unknown; AU 0.50 -> unknown; "
            "memory 1.0 GB -> unknown"
        ),
    ]


def test_a_plan_that_was_measured_is_told_with_the_ratio(repository: Repository, lines: Any) -> None:
    smooth(repository)
    for seed, (rate, fill_s) in enumerate([(250.0, 240.0), (252.0, 264.0)]):
        run(repository, ["experiment=cached", f"trainer.seed={seed}"], rate, fill_s=fill_s)
    write_costs()
    repository.commit("Smooth")
    assert lines("HEAD~1", "HEAD") == [
        f"{FILE}: changed, 2 entries differ",
        f"refills 15 MB in 2 caches on disk in 5.2 minutes (5 to 5.5), by 2 runs on {HERE}",
        "caches on disk: 15 MB -> 15 MB; the old ones stay until etlrun cache gc removes them",
        (
            f"expected on {HERE}: examples/s 500 (490 to 510, 3 runs) -> 251 (250 to 252, 2 runs), 0.50x "
            "(95% interval 0.48 to 0.53); AU 0.50 -> 0.25; memory 1.0 GB -> 1.0 GB"
        ),
    ]


def test_nothing_measured_is_unknown(repository: Repository, lines: Any) -> None:
    (repository.configs / "etlrun-costs.json").unlink()
    repository.commit("Not measured")
    smooth(repository)
    assert lines("HEAD") == [
        f"refills 2 caches on disk of unknown size; {UNTOLD}",
        "caches on disk: unknown; the old ones stay until etlrun cache gc removes them",
    ]


def test_sums_count_a_cache_that_experiments_share_once(repository: Repository, lines: Any) -> None:
    smooth(repository)
    smooth(repository, "twin")
    repository.write("experiment/tiny.yaml", CACHED + "transform: {resize: {size: [8, 8]}}\n")
    found = lines("HEAD")
    assert found[0] == f"cost: refills 15 MB in 4 caches on disk; {UNTOLD}"
    assert found[1] == OF_OLD
    assert found[4] == f"refills 317 kB in 2 caches on disk; {UNTOLD}"
    (repository.configs / "experiment" / "tiny.yaml").unlink()
    assert lines("HEAD")[0] == f"cost: {OF_OLD}"
    repository.write("etlrun-policy.yaml", "cost: {refill_gb: 0.015, minutes: 0.05}\n")
    assert lines("HEAD")[0] == f"cost: {OF_OLD}"
    repository.write("etlrun-policy.yaml", "cost: {refill_gb: 0.014, minutes: 0.04}\n")
    broken = "\n".join(lines("HEAD", status=4))
    assert "refill_gb: found 0.014832 GB of caches to refill in cached, twin; expected at most" in broken
    assert "minutes: found 0.041667 min of refilling caches in cached, twin; expected at most" in broken


def test_a_cache_that_another_experiment_has_filled_is_not_filled_again(repository: Repository, lines: Any) -> None:
    repository.write("experiment/twin.yaml", f"{CACHED}load: {{batch_size: 8}}\n")
    assert lines("HEAD") == [
        "the cache on disk of train is that of cached, and is not filled again",
        "the cache on disk of validation is that of cached, and is not filled again",
        "caches on disk: 15 MB",
        "expected examples/s, AU and memory: unknown, since no run of the new plan was measured",
    ]


def test_a_cache_in_memory_is_filled_by_each_run(repository: Repository, lines: Any) -> None:
    in_memory = CACHED.replace("/cache: disk", "/cache: memory")
    repository.write("experiment/cached.yaml", in_memory)
    assert lines("HEAD") == [
        "caches on disk: 15 MB -> 0; the old ones stay until etlrun cache gc removes them",
        (
            f"expected on {HERE}: examples/s 500 (490 to 510, 3 runs) -> unknown; AU 0.50 -> unknown; "
            "memory 1.0 GB -> unknown, at least the 15 MB of its caches"
        ),
    ]
    run(repository, ["experiment=cached"], 600.0, fill_s=1.0)
    write_costs()
    assert lines("HEAD", "experiment=cached", "--experiment", "cached")[0] == (
        "each run fills its caches in memory in 1.2 s"
    )
    (repository.configs / "etlrun-costs.json").unlink()
    assert lines("experiment=cached", "experiment=cached transform.resize.size=[8,8]") == []


@pytest.mark.parametrize(
    "words",
    [
        "trainer.seed=7",
        "trainer.epochs=9",
        "trainer.learning_rate=0.5",
        "dataset.data_dir=/data",
        "cache.dir=/caches",
        "measure.au_min=0.1",
    ],
)
def test_what_a_run_may_choose_is_no_other_plan(words: str, repository: Repository, lines: Any) -> None:
    key = "experiment=cached"
    assert [line for line in lines(key, f"{key} {words}") if line.startswith("expected")] == []
    outputs = repository.folder / "others"
    measured(outputs / "0", repository.configs, [key, words], 100.0)
    entries, _ = costs_of_runs(outputs)
    assert [entry.plan for entry in entries] == [
        entry.plan for entry in costs_of_runs(repository.folder / "outputs")[0]
    ]


@pytest.mark.parametrize("words", ["load.batch_size=64", "cache=none", "transform.resize.size=[9,9]"])
@pytest.mark.usefixtures("repository")
def test_what_changes_the_speed_is_another_plan(words: str, lines: Any) -> None:
    found = lines("experiment=cached", f"experiment=cached {words}")
    assert found[-1].startswith(f"expected on {HERE}: examples/s 500 (490 to 510, 3 runs) -> unknown; ")


def test_the_machine_that_has_measured_both_plans_is_told(repository: Repository, lines: Any) -> None:
    run(repository, ["experiment=cached"], 900.0, machine=OTHER_MACHINE, fill_s=1.0)
    run(repository, ["experiment=cached", "load.prefetch=1", "trainer.seed=7"], 990.0, machine=OTHER_MACHINE)
    assert lines("experiment=cached", "experiment=cached load.prefetch=1", "--runs", "outputs") == [
        (
            f"expected on {OTHER_MACHINE}: examples/s 900 (1 run) -> 990 (1 run), 1.10x; AU 0.90 -> 0.99; "
            "memory 1.0 GB -> 1.0 GB"
        ),
    ]


def test_runs_win_over_the_file(repository: Repository, lines: Any) -> None:
    smooth(repository)
    shutil.rmtree(repository.folder / "outputs")
    repository.git("checkout", "--quiet", "--", "mine")
    run(repository, ["experiment=cached"], 750.0, fill_s=8.0)
    smooth(repository)
    assert lines("HEAD", "--runs", "outputs")[0] == (
        f"refills 15 MB in 2 caches on disk in 10 s, by 1 run of the old plan on {HERE}"
    )


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("{\n", [f"{FILE}:1: found no JSON: Expecting property name enclosed in double quotes; expected JSON"]),
        ("[]", [f"{FILE}: found format None; expected measured costs of format 1"]),
        ('{"format": 2, "measured": []}', [f"{FILE}: found format 2; expected measured costs of format 1"]),
        ('{"format": 1}', [f"{FILE}: found no list of measured costs; expected measured costs of format 1"]),
        ('{"format": NaN}', [f"{FILE}: found the number NaN; expected JSON"]),
        (
            (
                '{\n "format": 1,\n "measured": [\n  {"experiment": "", "plan": 3, "au": [2], "reads": {"train": 1}},\n'
                '  {"experiment": "\\u001b", "plan": "", "machine": "", "memory": [], "reads": {"train": {"split": "",'
                ' "examples": -1, "fill_s": [true]}}}\n ]\n}\n'
            ),
            [
                f"{FILE}:4: measured[0].plan: found 3; expected a printable text",
                f"{FILE}:4: measured[0].machine: found nothing; expected a printable text",
                f"{FILE}:4: measured[0].au: found [2]; expected a list of numbers from 0 to 1",
                f"{FILE}:4: measured[0].reads.train: found 1; expected a mapping",
                (
                    f"{FILE}:5: measured[1].memory: found an unknown key; expected one of the keys experiment, plan, "
                    "machine, examples_per_s, au, memory_bytes, reads"
                ),
                f'{FILE}:5: measured[1].experiment: found "\\u001b"; expected a printable text',
                f"{FILE}:5: measured[1].reads.train.examples: found -1; expected an integer that is not negative",
                (
                    f"{FILE}:5: measured[1].reads.train.fill_s: found [true]; expected a list of numbers that are not "
                    "negative"
                ),
            ],
        ),
    ],
)
def test_a_file_that_holds_no_costs_is_told_with_its_lines(text: str, faults: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text.encode(), FILE)
    assert [str(fault) for fault in caught.value.faults] == [f"{fault}\n    -> {REMEDY}" for fault in faults]


def test_a_broken_file_is_a_fault_until_it_is_repaired(
    repository: Repository, lines: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("etlrun-costs.json", "[]")
    told = f"{FILE}: found format None; expected measured costs of format 1\n    -> {REMEDY}"
    for tried in (lambda: check.main([*BASE]), lambda: lines("HEAD"), write_costs):
        with pytest.raises(ConfigError) as caught:
            tried()
        assert str(caught.value) == told
    smooth(repository)
    repository.commit("Broken")
    (repository.configs / "etlrun-costs.json").unlink()
    smooth(repository, "twin")
    assert lines("HEAD")[0] == f"{FILE} of HEAD can't be read, and its costs are left out"
    repository.write("etlrun-costs.json", "{")
    with pytest.raises(ConfigError):
        lines("", "load.prefetch=1")
    assert capsys.readouterr().out.count(f"{FILE} can't be read, and its costs are left out\n") == 1


def test_costs_are_not_written_beside_configs_that_are_not_ones_own(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.folder / "outputs")
    with pytest.raises(ConfigError) as caught:
        costs.main(["--write", "."])
    assert str(caught.value) == (
        f"--config-dir: found none, and etlrun's own is {config_dir()}; expected the folder of your configs, which "
        "keeps their costs\n    -> name it, as in etlrun costs --write --config-dir conf"
    )


def test_a_document_has_the_costs(repository: Repository, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    smooth(repository)
    capsys.readouterr()
    document = json.loads(told("HEAD", *BASE, "--format", "json"))
    cost = next(of["cost"] for of in document["experiments"] if of["name"] == "cached")
    assert (cost["refill_bytes"], cost["machine"]) == (1200 * 12360, HERE)
    assert cost["refill_s"] == {"value": 2.5, "low": pytest.approx(2.375), "high": 3.0, "runs": 3}
    assert [of["pipeline"] for of in cost["refills"]] == ["train", "validation"]
    assert (cost["au"][0]["value"], cost["au"][1]) == (0.5, None)
    assert cost["disk_bytes"] == [1200 * 12360, 1200 * 12360]
