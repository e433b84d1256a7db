"""What the hosts of a run compare before its first step: their plans and their data."""

import json
import shutil
from pathlib import Path

import pytest

from etlrun.planning.plan import Plan
from etlrun.run.hosts import Place
from etlrun.run.keepers import readings_of
from etlrun.run.parts import differences, said_by
from etlrun.sources.base import open_source
from tests.hosts import SHARED, on_two_hosts
from tests.own import PETS, image, of_folder, of_records, records
from tests.runs import finish, small, summary_of

COPY = "    -> copy the dataset of host 0 to host 1, or share one storage"
DATA = f"host 1: found other records or images in its part of the data; expected the same ones, as on host 0\n{COPY}"


def told(*plans: Plan) -> list[str]:
    """The differences between hosts, of which each has one of these plans on its own data."""
    said = []
    for number, plan in enumerate(plans):
        place = Place(number=number, count=len(plans))
        said.append(json.loads(json.dumps(said_by(place, plan, readings_of(plan, open_source(plan.spec.dataset))))))
    if len(plans) > 1:  # the folder is a value of the plan, which is the same on the disks of two machines
        said = [{**of, "plan": said[0]["plan"]} for of in said]
    return [str(fault) for fault in differences(said)]


def test_folders_are_compared_by_classes_counts_and_what_each_host_reads(folder: Path) -> None:
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
    shown = ", ".join(sorted(PETS))
    assert found == {
        "exchanged": [DATA],
        "renamed": [f"host 1: found the classes a cow, dög (2); expected {shown} (2), as on host 0\n{COPY}"],
        "fewer": [f"host 1: found 39 examples in 'train'; expected 40 examples in 'train', as on host 0\n{COPY}"],
        "other": [DATA],
        "elsewhere": [],  # host 0 reads that part
        "same": [],
    }


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


def test_other_plans_are_named() -> None:
    said = {
        "plan": "a",
        "resume": None,
        "classes": [2, "cat, dog", "0"],
        "examples": {"train": 4},
        "digests": {"0": "x", "1": None},
    }
    other = {**said, "plan": "b"}
    found = "host 1: found the plan b; expected a, as on host 0"
    remedy = "start all with the same command, in the same version of etlrun"
    assert [str(fault) for fault in differences([said, other])] == [f"{found}\n    -> {remedy}"]
    found = "host 1: found trainer.resume=other; expected trainer.resume=null, as on host 0"
    remedy = "start all with the same command"
    assert [str(fault) for fault in differences([said, {**said, "resume": "other"}])] == [f"{found}\n    -> {remedy}"]
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
