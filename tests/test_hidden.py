"""Variables that options of a store name: texts until the store is opened, and values in nothing that is written."""

import logging
import os
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from etlrun.cli.main import main
from etlrun.remote.objects import UnreachableError, file_system, looked_up
from etlrun.system import hidden
from etlrun.system.errors import headline
from etlrun.system.hidden import Variable, in_review, traced
from tests.buckets import Bucket, store
from tests.configs import composed, raised, refusal_of_config
from tests.golden import Case, Golden, Says, cases
from tests.present import present
from tests.readers import logging_as_it_was
from tests.repository import Repository
from tests.runs import SMALL, finish, start
from tests.servers import serving
from tests.test_resolvers import answered

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
SECRETS = {"A_KEY": "PLANTEDKEY7Q", "A_SECRET": "planted/secret+9", "A_TOKEN": "planted token"}
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
    return Away(tmp_path, {"A_STORE": store.endpoint, **SECRETS})


@pytest.mark.slow
@pytest.mark.needs("moto", "s3fs", "mlflow-skinny", "wandb")
def test_a_run_a_sweep_a_resume_and_commands_on_them_write_no_value(away: Away) -> None:
    words, debug = away.words, "hydra.verbose=true"
    assert away.run(*words, "hydra.run.dir=run", debug, "logger=mlflow") == 0
    on = ("hydra.run.dir=on", "trainer.epochs=2", "trainer.resume=run", "logger=wandb", "logger.mode=offline")
    assert away.run(*words, debug, *on) == 0
    assert away.run("-m", *words, "hydra.sweep.dir=sweep", debug, "load.prefetch=0,1") == 0
    assert away.run("evaluate", "run") == 0
    assert away.run("export", "run", "--format", "keras") == 0
    assert away.run("show", *words) == away.run("doctor", *words) == away.run("report", "run") == 0
    assert away.run("config", "eject", *words) == 2  # as of all URLs
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


PLANTED = "https://me:pass%2Fword@store.of.mine:9000/"
HEAD = "# @package _global_\n# Pets in a store. Costs a minute.\n"
TABLE = f"""{HEAD}defaults: [override /dataset: table, override /transform: columns, override /model: tabular, _self_]
dataset:
  files: [s3://bucket/a.csv, s3://bucket/b.csv]
  target: {{price: number}}
  storage: {{endpoint_url: "${{oc.env:A_STORE}}", key: "${{oc.env:A_KEY}}", secret: "${{oc.env:A_SECRET}}"}}
"""
PETS = f"""{HEAD}dataset:
  data_dir: s3://bucket/data
  storage: {{endpoint_url: "${{oc.env:A_STORE,https://a.b}}", at_once: 4}}
"""
TEXTS = {"${oc.env:A_STORE}", "${oc.env:A_KEY}", "${oc.env:A_SECRET}", "${oc.env:A_STORE,https://a.b}"}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is hidden before and after a test."""
    monkeypatch.setattr(hidden, "_hidden", {})
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    made = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(made)


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Experiments on data in stores of variables, in the working directory."""
    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    made.write("experiment/prices.yaml", TABLE)
    made.write("experiment/pets.yaml", PETS)
    made.commit("Stores")
    return made


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${oc.env:A}", ("A", None)),
        ("${oc.env:A_1,http://host:9000/x y }", ("A_1", "http://host:9000/x y")),
        ("${oc.env:A,}", ("A", "")),
        *(
            (text, None)
            for text in ("${oc.env:}", "${oc.env:1}", "x${oc.env:A}", "${oc.env:A,${b}}", "${oc.env:A,'b'}")
        ),
        *((text, None) for text in ("${oc.env: A}", "\\${oc.env:A}", "${oc.decode:A}", "${A}", "${oc.env:Ä}", "A")),
    ],
)
def test_a_variable_is_named_by_the_whole_text(text: str, found: tuple[str, str | None] | None) -> None:
    variable = Variable.of(text)
    assert (variable and (variable.name, variable.default)) == found
    assert variable is None or variable.text == text


def test_plans_and_reviews_show_the_text(
    pets: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pets.replace("experiment/prices.yaml", 'A_KEY}"', 'A_KEY}", requester_pays: true')
    pets.replace("experiment/pets.yaml", "at_once: 4", "at_once: 8, profile: '${oc.env:A_KEY,null}'")
    told = ""
    with serving() as server:
        for name, value in {"A_STORE": server.url, "A_KEY": "AKIA-planted", "A_SECRET": "planted"}.items():
            monkeypatch.setenv(name, value)
        for words in (
            *(["diff", "main", "--format", form] for form in ("text", "markdown", "json")),
            ["check"],
            *(["plan", *options, f"experiment={name}"] for name in ("pets", "prices") for options in ([], ["-m"])),
        ):
            told += _said(capfd, *words, "--config-dir", "mine")
        assert not server.sent
    assert server.url.rpartition("/")[2] not in told
    assert "planted" not in told
    assert all(text in told for text in TEXTS)
    assert "note: to fetch: unknown, since only a run reads the variables of dataset.storage\n" in told
    assert "a.csv is not on this machine: its columns are not checked, and nothing is fitted." in told


def _said(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that comes to its end prints."""
    capfd.readouterr()
    with logging_as_it_was():
        main(list(words))
    return "".join(capfd.readouterr())


def test_credentials_are_named_and_defaults_are_none(says: Says) -> None:
    words = ("dataset=table", "dataset.target={price: number}", "transform=columns", "model=tabular")
    config = composed(*words, "dataset.files=s3://bucket/a.csv")
    config["dataset"]["storage"] = {"key": "AKIA-planted", "secret": "${oc.env:A,planted}", "password": "planted"}
    says(refusal_of_config(config))
    config["dataset"]["storage"] = {"endpoint_url": "${oc.env:A,http://me:planted@b}"}
    says(refusal_of_config(config))


@pytest.mark.parametrize("reference", ["${dataset.storage.profile}", "${oc.select:dataset.storage.profile}"])
def test_a_reference_to_one_is_refused(
    reference: str, pets: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], says: Says
) -> None:
    monkeypatch.setenv("A", "planted")
    pets.write(
        "experiment/pets.yaml", f"{HEAD}dataset: {{data_dir: '{reference}', storage: {{profile: '${{oc.env:A}}'}}}}\n"
    )
    status, told = answered(capfd, "plan", "--config-dir", "mine", "experiment=pets")
    assert status == 2
    says(told)


@pytest.mark.parametrize("case", cases("variables"))
def test_a_variable_without_a_value_is_named(case: Case, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A", raising=False)
    if case["value"] is not None:
        monkeypatch.setenv("A", case["value"])
    golden(case, raised(UnreachableError, file_system, "s3://bucket/a", {case["option"]: case["text"]}))


def test_a_review_opens_no_store_of_a_variable(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setenv("A", "planted")
    with in_review(), pytest.raises(UnreachableError) as caught:
        file_system("s3://bucket/a", {"profile": "${oc.env:A}"})
    says(str(caught.value))


def test_an_answer_of_a_server_hides_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "planted one")
    variable, answer = Variable.of("${oc.env:A}"), OSError()
    assert variable is not None
    variable.read()
    answer.__dict__.update(status=500, message="no planted one here")
    assert str(UnreachableError.of("s3://a", answer)).startswith("s3://a: found 500 no ${oc.env:A} here; expected")


@pytest.mark.slow
@pytest.mark.needs("s3fs")
def test_a_value_is_given_to_the_store_and_told_by_no_error(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    with serving() as server:
        nobody = server.url
    monkeypatch.setenv("A_STORE", nobody)
    monkeypatch.setenv("A_NAME", "planted profile")
    given: dict[str, bool | str | int] = {
        "endpoint_url": "${oc.env:A_STORE}",
        "profile": "${oc.env:A_NONE,null}",
        "at_once": 2,
        "anon": True,
    }
    opened = file_system("s3://bucket/a", given)
    assert (opened.endpoint_url, opened.anon) == (nobody, True)
    with pytest.raises(UnreachableError) as unreached:
        looked_up("s3://bucket/a", given)
    says(str(unreached.value))
    with pytest.raises(UnreachableError) as unknown:
        looked_up("s3://bucket/a", {"profile": "${oc.env:A_NAME}"})
    assert str(unknown.value).startswith(
        "s3://bucket/a: found The config profile (${oc.env:A_NAME}) could not be found; expected credentials"
    )
    assert nobody.rpartition("/")[2] not in traced(unreached.value)
    assert "planted" not in traced(unknown.value)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (f"no answer of {PLANTED}bucket", "no answer of ${oc.env:A}bucket"),
        ("store.of.mine:9000 is away", "${oc.env:A} is away"),
        ("https://STORE/?x=https%3A%2F%2Fme%3Apass%252Fword%40store.of.mine%3A9000%2F", "https://STORE/?x=${oc.env:A}"),
        ("user me, password pass/word", "user ${oc.env:A}, password ${oc.env:A}"),
        ("some name of a method", "some name of a method"),
    ],
)
def test_values_are_hidden_in_all_forms(told: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", PLANTED)
    variable = present(Variable.of("${oc.env:A}"))
    assert hidden.hidden(told) == told
    assert variable.read() == PLANTED
    assert hidden.hidden(told) == shown
    assert headline(ValueError(told)) == shown


def test_records_of_logs_hide_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", PLANTED)
    variable, written = Variable.of("${oc.env:A}"), StringIO()
    assert variable is not None
    variable.read()
    logger, handler = logging.getLogger("of a library"), logging.StreamHandler(written)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.debug("asks %s with %s", PLANTED, {"Authorization": "pass/word"})
    with pytest.raises(ValueError, match="is no number") as caught:
        float(f"{PLANTED} is no number")
    logger.error("%d of %d", 1, 2, exc_info=caught.value)
    logger.removeHandler(handler)
    assert written.getvalue().startswith(
        "asks ${oc.env:A} with {'Authorization': '${oc.env:A}'}\n1 of 2\nTraceback (most recent call last):\n"
    )
    assert written.getvalue().endswith("\nValueError: could not convert string to float: '${oc.env:A} is no number'\n")


def test_a_traceback_that_ends_a_process_hides_values(tmp_path: Path) -> None:
    lines = [
        "from etlrun.system.hidden import Variable",
        "Variable.of('${oc.env:A}').read()",
        "raise ValueError('a planted one')",
    ]
    (tmp_path / "ends.py").write_text("\n".join(lines))
    status, out, err = finish(start([], tmp_path, "ends", A="planted"))
    assert (status, out) == (1, "")
    assert err.endswith("\nValueError: a ${oc.env:A} one\n")
