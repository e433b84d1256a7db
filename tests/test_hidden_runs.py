"""Runs of data in a store that variables of the environment name: their values are in nothing that is written."""

import os
from pathlib import Path

import pytest

from tests.buckets import Bucket, store
from tests.runs import SMALL, finish, start

__all__ = ["store"]

CONFIG = """\
defaults: [tfds, _self_]
name: tiny_pictures
download: false
data_dir: s3://bucket/data
storage:
  endpoint_url: ${oc.env:A_STORE}
  key: ${oc.env:A_KEY}
  secret: ${oc.env:A_SECRET}
  token: ${oc.env:A_TOKEN}
"""
PLANTED = {"A_KEY": "PLANTEDKEY7Q", "A_SECRET": "planted/secret+9", "A_TOKEN": "planted token"}
ABSENT = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"


class Away:
    """A folder of runs whose data are in a bucket, and what commands there print."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder, self.variables, self.told = folder, variables, ""
        self.words = ["--config-dir", "mine", "dataset=pets", "dataset.copies=copies", *SMALL[3:]]
        (folder / "mine" / "dataset").mkdir(parents=True)
        (folder / "mine" / "dataset" / "pets.yaml").write_text(CONFIG)

    def run(self, *words: str, **others: str) -> int:
        """Run `etlrun` in a process of its own; its status."""
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        process = start([*words], self.folder, "tests.quick_jobs", **{**self.variables, **others, "PYTHONPATH": path})
        status, out, err = finish(process)
        self.told += f"$ {words}\n{out}{err}"
        return status

    def leaks(self) -> list[tuple[str, str]]:
        """The variables whose value is in a file, or was printed, and where."""
        files = {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        places = {**files, "printed": self.told.encode(), "names": "\n".join(files).encode()}
        values = {name: value.removeprefix("http://").encode() for name, value in self.variables.items()}
        return [(name, place) for place, text in places.items() for name, value in values.items() if value in text]


@pytest.fixture
def away(store: Bucket, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Away:
    for path in filter(Path.is_file, tiny.rglob("*")):
        store.files.put_file(str(path), f"bucket/data/{path.relative_to(tiny)}")
    for name in ABSENT:
        monkeypatch.delenv(name)
    return Away(tmp_path, {"A_STORE": store.endpoint, **PLANTED})


@pytest.mark.slow
@pytest.mark.needs("moto", "s3fs", "mlflow-skinny", "wandb")
def test_a_run_a_sweep_a_resume_and_commands_on_them_write_no_value(away: Away) -> None:
    words, debug = away.words, "hydra.verbose=true"
    assert away.run(*words, "hydra.run.dir=run", debug, "logger=mlflow") == 0
    assert (
        away.run(
            *words,
            "hydra.run.dir=on",
            debug,
            "trainer.epochs=2",
            "trainer.resume=run",
            "logger=wandb",
            "logger.mode=offline",
        )
        == 0
    )
    assert away.run("-m", *words, "hydra.sweep.dir=sweep", debug, "load.prefetch=0,1") == 0
    assert away.run("evaluate", "run") == 0
    assert away.run("export", "run", "--format", "keras") == 0
    assert away.run("show", *words) == away.run("doctor", *words) == away.run("report", "run") == 0
    assert away.run("eject", *words) == 2  # as of all URLs
    assert away.leaks() == []
    assert "A_STORE" in (away.folder / "run" / "etlrun.log").read_text()  # the debugging of a library
    for name in (".hydra/config.yaml", "plan.txt", "report.html"):
        assert "${oc.env:A_SECRET}" in (away.folder / "run" / name).read_text(), name


@pytest.mark.slow
@pytest.mark.needs("moto", "s3fs")
def test_a_run_whose_store_fails_writes_no_value(away: Away) -> None:
    words = [*away.words, "hydra.verbose=true"]
    away.variables["A_STORE"] = "http://planted-host.invalid:9"
    assert away.run(*words, "hydra.run.dir=nowhere", HYDRA_FULL_ERROR="1") == 1
    assert away.run(*words, "hydra.run.dir=nothing", A_SECRET="") == 1
    assert away.leaks() == []
    assert "Could not connect to the endpoint URL" in away.told
    assert away.told.endswith(
        "etlrun: failed\n  dataset.storage.secret: found no value of the environment variable A_SECRET; expected one, "
        "which ${oc.env:A_SECRET} names\n    -> export A_SECRET=VALUE\n"
    )
