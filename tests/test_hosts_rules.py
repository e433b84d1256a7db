"""What runs on several hosts refuse, where each host finds its place, and which part of the data it reads."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from etlrun.cluster.hosts import ALONE, HostPlace, differences, join_hosts, place_of, require_jax, said_by
from etlrun.measure.digest import union
from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run import run
from etlrun.run.readings import readings_of
from etlrun.sources.base import Split, open_source
from etlrun.sources.content import Shard
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError, WorldError
from tests.configs import composed, plan_of, raised
from tests.golden import Case, Golden, Says, cases
from tests.hosts import SHARED, on_two_hosts
from tests.own import PETS, image, of_folder, of_records, records
from tests.present import present
from tests.runs import finish, small, summary_of


def trainer_of(*words: str) -> Trainer:
    return present(plan_of(*words).spec.fit)


def test_a_run_that_is_started_in_another_way_is_refused(tmp_path: Path, says: Says) -> None:
    words = [*SHARED, "trainer.epochs=2"]
    Record.create(tmp_path / "run", composed(*words), words)
    assert run.run(tmp_path / "run") == ConfigError.status
    says(summary_of(tmp_path / "run")["error"])


SLURM = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}


@pytest.mark.parametrize(
    ("environment", "number"),
    [(SLURM, 1), ({**OPEN_MPI, **SLURM}, 0), ({**OPEN_MPI, "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}, 1)],
)
def test_the_environment_of_a_launcher_tells_the_place(environment: dict[str, str], number: int) -> None:
    assert place_of(trainer_of(*SHARED), environment) == HostPlace(number=number, count=2)


@pytest.mark.smoke
def test_without_a_launcher_a_host_is_alone() -> None:
    assert place_of(trainer_of(), {}) == ALONE


@pytest.mark.parametrize("case", cases("hosts"))
def test_hosts_that_do_not_find_their_place_are_refused(case: Case, golden: Golden) -> None:
    trainer = trainer_of(*SHARED) if case["hosts"] == 2 else trainer_of()
    find = (
        partial(join_hosts, case["backend"], trainer)
        if "backend" in case.values
        else partial(place_of, trainer, case["environment"])
    )
    golden(case, raised(WorldError, find))


def test_hosts_without_jax_are_refused(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    says(raised(WorldError, require_jax, trainer_of(*SHARED)))


@pytest.mark.needs("jax")
def test_a_launcher_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    says(raised(WorldError, join_hosts, "jax", trainer_of(*SHARED)))


def split_of(name: str, *shards: Shard) -> Split:
    source: Any = None  # which is not asked
    return Split(source=source, name=name, shards=shards)


@pytest.mark.parametrize("case", cases("hosts_notes"))
def test_what_is_left_out_is_noted(case: Case, golden: Golden) -> None:
    train = case["train"]
    files = 1 if train % 2 else 2
    shards = tuple(Shard(path=f"{at}", skip=0, take=train // files) for at in range(files))
    splits = {
        "train": split_of("t", *shards),
        "validation": split_of("v", Shard(path="0", skip=0, take=case["validation"])),
    }
    golden(case, "\n".join(HostPlace(number=0, count=case["hosts"]).notes(case["devices"], splits)))


def test_parts_of_a_split_are_parts_of_its_shards(says: Says) -> None:
    shards = (Shard(path="a", skip=2, take=3), Shard(path="b", skip=0, take=4))
    split = split_of("train", *shards)
    assert HostPlace(number=1, count=3).part(split) == split.part(2, 4)
    says([split.part(start, stop).shards for start, stop in ((0, 2), (2, 5), (5, 7))])


def test_the_digest_of_all_is_the_sum_of_those_of_each() -> None:
    most = "f" * 32
    assert union([f"2:{most}", f"3:{2:032x}"]) == f"5:{1:032x}"


COPY = "    -> copy the dataset of host 0 to host 1, or share one storage"
DATA = f"host 1: found other records or images in its part of the data; expected the same ones, as on host 0\n{COPY}"


def told(*plans: Plan) -> list[str]:
    """The differences between hosts, of which each has one of these plans on its own data."""
    said = []
    for number, plan in enumerate(plans):
        place = HostPlace(number=number, count=len(plans))
        said.append(json.loads(json.dumps(said_by(place, plan, readings_of(plan, open_source(plan.spec.dataset))))))
    if len(plans) > 1:  # the folder is a value of the plan, which is the same on the disks of two machines
        said = [{**of, "plan": said[0]["plan"]} for of in said]
    return [str(fault) for fault in differences(said)]


def test_folders_are_compared_by_classes_counts_and_what_each_host_reads(folder: Path, says: Says) -> None:
    names = ("exchanged", "renamed", "fewer", "other", "elsewhere", "same")
    copies = {name: Path(shutil.copytree(folder, folder.parent / name)) for name in names}
    cat, dog = (copies["exchanged"] / name for name in PETS)
    cat.rename(f"{cat} aside")
    dog.rename(cat)
    Path(f"{cat} aside").rename(dog)
    (copies["renamed"] / PETS[0]).rename(copies["renamed"] / "a cow")
    (copies["fewer"] / PETS[0] / "no 2.jpg").unlink()
    split = open_source(of_folder(folder).spec.dataset).split("train", "dataset.split")
    halves = {"other": split.part(20, 40).paths[0], "elsewhere": split.part(0, 20).paths[0]}
    for name, path in halves.items():
        (copies[name] / Path(path).relative_to(folder)).write_bytes(image(99))
    words = ("dataset.split=train", "dataset.eval_split=null")
    found = {name: told(of_folder(folder, *words), of_folder(copies[name], *words)) for name in names}
    says(found)


def test_the_validation_is_compared_too(tmp_path: Path) -> None:
    plans = []
    for name, last in (("one", 9), ("two", 7)):
        data = tmp_path / name
        data.mkdir()
        records(data, "a.tfrecord", range(8))
        records(data, "b.tfrecord", range(8, 10))
        records(data, "c.tfrecord", range(last, last + 2))
        plans.append(of_records(data, "dataset.split='train[:8]'", "dataset.eval_split='train[8:]'"))
    assert told(*plans) == [DATA]
    assert told(plans[0], plans[0]) == []


def test_other_plans_are_named(says: Says) -> None:
    said = {
        "plan": "the plan a",
        "resume": "trainer.resume=null",
        "classes": "the classes cat, dog (2)",
        "examples": "4 examples in 'train'",
        "digests": {"0": "x", "1": None},
    }
    other = {**said, "plan": "the plan b"}
    says([str(fault) for fault in differences([said, other])])
    says([str(fault) for fault in differences([said, {**said, "resume": "trainer.resume=other"}])])
    assert list(differences([said, {**said, "digests": {"1": "y"}}])) == [], "host 0 could not read that part"


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_fewer_examples_end_all_hosts_before_the_first_step(tiny: Path, tmp_path: Path) -> None:
    fewer = Path(shutil.copytree(tiny, tmp_path / "fewer"))
    path = next(fewer.rglob("dataset_info.json"))
    info = json.loads(path.read_text())
    info["splits"][0]["shardLengths"][-1] = "4"
    path.write_text(json.dumps(info))
    run, words = tmp_path / "run", (*SHARED, "dataset.split=train", "dataset.eval_split=null", "model.weights=null")
    both = [small(of, *words, f"hydra.run.dir={run}") for of in (tiny, fewer)]
    ended = [finish(host) for host in on_two_hosts(both[0], tmp_path, other=both[1])]
    error = f"host 1: found 40 examples in 'train'; expected 48 examples in 'train', as on host 0\n{COPY}"
    assert [status for status, _, _ in ended] == [1, 1]
    for said, (_, _, err) in zip((f"etlrun: failed\n  {error}\n", f"etlrun: {error}\n"), ended, strict=True):
        assert said in err
    assert (summary_of(run)["error"], summary_of(run)["epochs"]) == (error, [])
