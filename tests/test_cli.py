"""Commands in processes of their own: what they import, print and leave, and what `--quiet` and `--json` change."""

import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
import yaml

from etlrun.cli import launch
from etlrun.cli import main as cli
from etlrun.cli.commands import COMMANDS, DAILY
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.eject import program
from etlrun.graph import figures
from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run.readings import keepers_for
from etlrun.stages import STAGES
from etlrun.system.errors import Fault
from tests.configs import CONF, composed, plan_of
from tests.forked import Forked, forked
from tests.golden import Says
from tests.made import made
from tests.present import present
from tests.runs import emulated, finish, small, summary_of, wait_for_epoch
from tests.sweeps import QUICK

FRAMEWORKS = {"tensorflow", "keras", "tensorflow_datasets"}
IMPORTED = re.compile(r"^import time:[ \d]+\|[ \d]+\| +(\S+)$", re.MULTILINE)
REFUSED_CACHE = """\
etlrun: 2 faults
  cache: found the unknown option 'disc'; expected one of disk, memory, none
    -> did you mean cache=disk?
  load.batch_size: found 0; expected a positive integer
"""


def answered(cwd: Path, *words: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of `etlrun` with `words` in a process of its own."""
    return finish(forked([*words], cwd))


ANSWERED = {
    ("--help",): 0,
    ("-sc", "query=bash"): 0,
    ("plan",): 0,
    ("help", "load.prefetch"): 0,
    ("diff", "experiment=naive", "experiment=parallel"): 0,
    ("verify", "experiment=parallel", "experiment=parallel"): 0,
    ("check", "--config-dir", "own"): 0,
    ("config", "eject", "experiment=parallel"): 0,
    ("plan", "experiment=cats_vs_dogs", "load.class_weights=balanced", "--format", "json"): 0,
    ("--cfg", "job"): 0,
    ("diff", "cache=disk", "cache=disk load.prefetch=1"): 0,
    ("check",): 0,
    ("config", "schema"): 0,
    ("runs", "ls", "."): 0,
    ("report", "nowhere"): 1,
    ("data", "prepare", "nowhere", "--name", "own"): 1,
    ("evaluate", "nowhere"): 1,
    ("predict", "nowhere", "photos"): 1,
    ("load.batch_size=0",): 2,
    ("show", "load.batch_size=0"): 2,
    ("--multirun", "load.batch_size=0,1"): 2,
}
"""Commands that are answered without a run, and the exit status of each."""
OF_RUNS = re.compile(
    r"(numpy|pyarrow|scipy|pandas|PIL|jinja2|matplotlib|rich|sqlite3|etlrun\.(run|remote|measure|datasets))\b"
)
"""Modules that no plan, comparison or check of images needs."""
ANSWER = """\
import json, sys
from etlrun.cli import main as cli
known, found = set(), []
for words in json.loads(sys.argv[1]):
    status, sys.argv[1:] = 0, words
    try:
        cli.main(words)
    except SystemExit as ended:
        status = ended.code or 0
    found.append([status, sorted({*sys.modules} - known)])
    known.update(found[-1][1])
sys.stderr.write(f"\\n{json.dumps(found)}")
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[int, set[str]]]:
    """The exit status of each command, and which modules it is the first to import, one after the other in a process.

    The process is a fresh one: what they import, no test has imported.
    """
    command = [sys.executable, "-c", ANSWER, json.dumps([*ANSWERED])]
    folder = tmp_path_factory.mktemp("answers")
    (folder / "own" / "experiment").mkdir(parents=True)
    copyfile(CONF / "experiment" / "naive.yaml", folder / "own" / "experiment" / "mine.yaml")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = json.loads(done.stderr.splitlines()[-1])
    return {words: (status, set(packages)) for words, (status, packages) in zip(ANSWERED, found, strict=True)}


@pytest.mark.parametrize("words", ANSWERED, ids=" ".join)
def test_no_framework_is_imported_to_answer(
    words: tuple[str, ...], answers: dict[tuple[str, ...], tuple[int, set[str]]]
) -> None:
    status, packages = answers[words]
    assert status == ANSWERED[words]
    assert packages & FRAMEWORKS == set()


@pytest.mark.parametrize("words", [*ANSWERED][:7], ids=" ".join)
def test_what_runs_need_is_not_imported_for_configs(
    words: tuple[str, ...], answers: dict[tuple[str, ...], tuple[int, set[str]]]
) -> None:
    assert [name for name in sorted(answers[words][1]) if OF_RUNS.match(name)] == []


def test_what_reads_data_is_not_imported_to_launch() -> None:
    code = "import sys, etlrun.cli.launch; print({'PIL', 'sqlite3', 'etlrun.graph.context'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_runs_are_listed_without_composing_configs(tmp_path: Path) -> None:
    made(tmp_path / "outputs" / "run")
    code = "import sys; from etlrun.cli.main import main; main(['runs', 'ls']); print('hydra' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert re.fullmatch(r"(?s)folder .*\noutputs/run .*\n1 run and 0 sweeps in outputs .*\nFalse\n", done.stdout)


def test_a_cache_is_explained_without_tensorflow(tiny: Path, folder: Path, tmp_path: Path) -> None:
    """With the decoding before it; of TFDS's datasets TFDS alone is imported."""
    import tensorflow  # noqa: F401, ICN001

    disk = ("model=emulated", "cache=disk", f"cache.dir={tmp_path / 'caches'}")
    for dataset, imported in (
        (small(tiny), {"tensorflow_datasets"}),
        (["dataset=folder", f"dataset.dir={folder}"], set()),
    ):
        words = [word for word in dataset if not word.startswith("model.trainable")]
        command = [sys.executable, "-X", "importtime", "-m", "etlrun", "cache", "why", *words, *disk]
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        modules = {name.split(".")[0] for name in IMPORTED.findall(answer.stderr)}
        (key,) = (keeper.key for name, keeper in keepers_for(plan_of(*words, *disk)).items() if name == "train")
        assert answer.stdout.startswith(f"train      miss  {key}  ")  # the key of this process, which has TensorFlow
        assert modules & FRAMEWORKS == imported


@pytest.mark.parametrize(("option", "printed"), [("--all", render.text_here), ("--format=json", render.as_json)])
def test_a_plan_is_printed_whole_from_any_folder(option: str, printed: Callable[[Plan], str], tmp_path: Path) -> None:
    assert answered(tmp_path, "plan", option, "trainer.epochs=2") == (0, printed(plan_of("trainer.epochs=2")), "")
    assert list(tmp_path.iterdir()) == []


def test_all_values_are_those_of_one_plan(tmp_path: Path, says: Says) -> None:
    says(answered(tmp_path, "plan", "--all", "-m", "load.prefetch=0,1"))


def test_a_program_is_printed(tmp_path: Path) -> None:
    printed = program.ejected(plan_of("trainer.epochs=2"), ["trainer.epochs=2"], program.versions())
    assert answered(tmp_path, "config", "eject", "trainer.epochs=2") == (0, printed, "")


@pytest.mark.parametrize(
    "line",
    [
        "load.batch_size=64 ++load.batch_size=32", "++load.batch_size=32 load.batch_size=64",
        "load.batch_size=64 load.batch_size=16", "load.batch_size=64 ~load.batch_size +load.batch_size=8",
        "load.batch_size=64 load={batch_size:16} ++load.prefetch=1",
        "++load.shuffle_buffer=${load.batch_size} load.batch_size=8 ++load.batch_size=9",
        "~trainer.early_stopping +trainer.early_stopping={patience:2,monitor:loss,min_delta:0.0}",
        "cache.at=decoded cache=none cache=disk cache.at=resize ++cache.at=source",
        "experiment=naive experiment=parallel model.weights=null +load@extra=plain ~extra",
        "cache=[disk,memory] profile=trace ~profile.windows +profile.windows=[[1,2]]",
    ],
)  # fmt: skip
def test_the_last_override_of_a_key_counts_in_plans_runs_and_sweeps(line: str, tmp_path: Path) -> None:
    words = line.split()
    (tmp_path / "run" / "plan.json").mkdir(parents=True)  # which ends the run once it has left its plan
    _, _, err = finish(forked([*words, "hydra.run.dir=run"], tmp_path))
    assert err.startswith(f"etlrun: failed\n  {tmp_path}/run: found [Errno 21] Is a directory: "), err
    ran = (tmp_path / "run" / "plan.txt").read_text()
    assert ran == figures.text_of(grid.resolve(Request(overrides=words), STAGES).plan)
    (job,) = grid.of(Request(overrides=words, multirun=True), STAGES).jobs
    assert ran == figures.text_of(job.plan)


def test_help_is_short_has_examples_and_names_each_command_by_what_it_is_for(tmp_path: Path) -> None:
    status, out, err = answered(tmp_path, "--help")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) < 40  # of a small terminal
    assert max(map(len, lines)) <= 80
    assert "  etlrun experiment=own dataset.dir=photos    train on a folder of classes" in lines
    at = lines.index("more: tune, verify, init, help; and commands with parts:")
    assert [line.split()[0] for line in lines[at - 1 - len(DAILY) : at - 1]] == [*DAILY]
    nouns = {name: [*command.parts] for name, command in COMMANDS.items() if command.parts}
    assert [line.replace(",", "").split() for line in lines[at + 1 : at + 1 + len(nouns)]] == [
        [name, *parts] for name, parts in nouns.items()
    ]
    assert {*DAILY, *nouns, "tune", "verify", "init", "help"} == {*COMMANDS}
    assert answered(tmp_path, "cache=disk", "-h") == (0, out, "")


@pytest.mark.smoke
def test_the_version_is_that_of_etlrun(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--version"])
    assert capsys.readouterr().out == (
        f"etlrun {version('etlrun')} (Python {platform.python_version()}, tensorflow {version('tensorflow')}, "
        f"keras {version('keras')}, tensorflow-datasets {version('tensorflow-datasets')}, "
        f"hydra-core {version('hydra-core')})\n"
    )


def test_hydra_prints_the_composed_config(tmp_path: Path) -> None:
    status, out, err = answered(tmp_path, "--cfg", "job", "cache=none")
    assert (status, err) == (0, "")
    printed = yaml.safe_load(out)
    assert printed.pop("sweep")["repeats"] == 1
    assert printed.pop("tune")["budget_s"] == 600
    assert printed == composed("cache=none")
    assert list(tmp_path.iterdir()) == []


def test_the_command_is_installed(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("etlrun")), "plan", "cache=disc", "load.batch_size=0"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (2, "", REFUSED_CACHE)


@pytest.mark.slow
def test_a_report_that_can_not_be_printed_fails_the_command_of_its_run(tiny: Path, tmp_path: Path, says: Says) -> None:
    words = emulated(tiny, "model.step_ms=0", "cache=none", "trainer.epochs=1", "hydra.run.dir=run")
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "etlrun", *words]
        ended = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, summary_of(tmp_path / "run")["status"]) == (1, "completed")
    lines = ended.stderr.splitlines()
    assert lines[2].startswith("epoch 1/1 ")
    says(lines[3:])


@pytest.mark.slow
def test_a_run_whose_streams_are_closed_or_left_completes(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "model.step_ms=0", "cache=none", "trainer.epochs=1", "hydra.run.dir=run")
    run = shlex.join([sys.executable, "-m", "etlrun", *words])
    for redirected, status in (("2>&-", 0), (">&- 2>&-", 0), ("2>lines | true", 1)):
        command = ["bash", "-o", "pipefail", "-c", f"{run} {redirected}"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (status, "")
        assert summary_of(tmp_path / "run")["status"] == "completed"
        shutil.rmtree(tmp_path / "run")
    lines = (tmp_path / "lines").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["device", "data", "epoch"]


def document(text: str) -> dict[str, Any]:
    """The one JSON document that is all of `text`."""
    found: dict[str, Any] = json.loads(text)
    assert text == json.dumps(found, indent=2) + "\n"
    return found


def test_a_quiet_run_prints_nothing(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "cache=none", f"hydra.run.dir={tmp_path / 'run'}")
    assert answered(tmp_path, "--quiet", *words) == (0, "", "")
    assert summary_of(tmp_path / "run")["status"] == "completed"


def test_json_is_the_summary_with_its_folder_and_all_else_is_on_stderr(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    status, out, err = answered(tmp_path, *emulated(tiny, "measure.au_min=0.99"), "--json", f"hydra.run.dir={folder}")
    assert (status, document(out)) == (3, {"folder": str(folder), **summary_of(folder)})
    lines = err.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["device", "data", "epoch", "verdict"]
    assert lines[-1] == "tables    etlrun report run"


def test_json_of_a_run_that_fails_has_its_error_and_standard_error_the_fault(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = emulated(tiny, "dataset.split=nothing", f"hydra.run.dir={folder}")
    status, out, err = answered(tmp_path, *words, "--json", "--quiet")
    found = document(out)
    assert (status, found) == (1, {"folder": str(folder), **summary_of(folder)})
    assert found["status"] == "failed"
    assert err == f"etlrun: failed\n  {found['error']}\n"


def test_json_of_a_training_begins_with_its_result(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run", {}, [])
    record.update(status="completed", epochs=[{"epoch": 1, "loss": 0.5, "val_accuracy": float("nan")}])
    launch.answer_run(tmp_path / "run")
    found = present(launch._answer.document)
    assert [*found().items()][:2] == [("folder", f"{tmp_path}/run"), ("result", {"loss": 0.5, "val_accuracy": None})]


def test_json_of_what_is_refused_before_a_run_has_the_fault(tmp_path: Path, says: Says) -> None:
    status, out, err = answered(tmp_path, "cahe=disk", "--json")
    found = document(out)
    assert (status, found["status"]) == (2, "failed")
    says(found["error"])
    assert err == f"etlrun: 1 fault\n  {found['error']}\n"
    assert not (tmp_path / "outputs").exists()


def test_json_of_faults_has_overrides_that_end_them_and_says_where_a_person_decides(tmp_path: Path) -> None:
    bad = ("load.prefech=2", "load.batch_size=many", "trainer.hosts=2", "load.sample=balanced")
    status, out, _ = answered(tmp_path, "plan", *bad, "--format", "json")
    found = document(out)
    assert (status, found["status"], found["exit_status"]) == (2, "failed", 2)
    assert {of["where"]: (of["overrides"], of["decide"]) for of in found["faults"]} == {
        "load.batch_size": ([["load.batch_size=32"]], True),
        "load.prefech": ([["load.prefetch=2"]], False),
        "load.sample": ([["load.sample=all"]], True),
    }
    status, out, _ = answered(tmp_path, "plan", "trainer.hosts=2", "--format", "json")
    (fault,) = document(out)["faults"]
    assert (fault["overrides"], fault["decide"]) == ([["load.drop_remainder=true"], ["trainer.hosts=1"]], True)
    for words in fault["overrides"]:
        assert answered(tmp_path, "plan", "trainer.hosts=2", *words)[0] == 0


def test_json_of_a_misspelled_name_has_the_override_with_the_name_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "houses.csv").write_text(
        "area,rooms,kind\n" + "".join(f"{row}.5,{row % 4},{row % 2}\n" for row in range(60))
    )
    table = ("experiment=table", "dataset.files=houses.csv", "dataset.dir=kept")
    bad = ("dataset.target={knid: class}", "trainer.metrics=[acuracy,f1]", "transform.columns={area: [standardize]}")
    status, out, _ = answered(tmp_path, "plan", *table, *bad, "--json")
    assert status == 2
    assert {of["where"]: (of["overrides"], of["decide"]) for of in document(out)["faults"]} == {
        "transform.columns.area": ([["~transform.columns.area"]], True),
        "trainer.metrics": ([['trainer.metrics=["accuracy","f1"]']], False),
    }
    status, out, _ = answered(tmp_path, "plan", *table, bad[0], "dataset.inputs=[area,romos]", "--json")
    assert {of["where"]: (of["overrides"], of["decide"]) for of in document(out)["faults"]} == {
        "dataset.inputs": ([['dataset.inputs=["area","rooms"]']], False),
        "dataset.target": ([['dataset.target={kind: "class"}']], False),
    }


def test_json_of_a_dataset_without_an_input_has_the_fault_of_each_stage(tmp_path: Path) -> None:
    status, out, _ = answered(tmp_path, "plan", "dataset.target={image: class 3}", "--json")
    first, *others = [(of["where"], of["found"]) for of in document(out)["faults"]]
    assert (status, first) == (2, ("dataset.features", "image, which is the target"))
    assert others[0] == ("transform.decode", "{}, image before it")


def test_json_of_an_argument_that_is_wrong_has_the_command_that_is_meant(tmp_path: Path) -> None:
    status, out, _ = answered(tmp_path, "train", "--json")
    (fault,) = document(out)["faults"]
    assert (status, fault["where"], fault["overrides"], fault["decide"]) == (2, "train", [], True)
    status, out, _ = answered(tmp_path, "experiment=naive", "diff", "--json")
    (fault,) = document(out)["faults"]
    assert (status, fault["command"], fault["decide"]) == (2, "etlrun diff experiment=naive --json", False)


def test_json_of_an_interrupted_run_says_so_and_the_command_that_resumes_it_is_an_error(
    tiny: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    words = emulated(tiny, "trainer.epochs=400", "cache=none", f"hydra.run.dir={folder}", "--json", "--quiet")
    process = forked(words, tmp_path)
    wait_for_epoch(process, folder)
    os.killpg(process.pid, signal.SIGINT)
    status, out, err = finish(process)
    found = document(out)
    assert (status, found) == (130, {"folder": str(folder), **summary_of(folder)})
    assert (found["status"], found["error"]) == ("interrupted", "The run was interrupted")
    assert err == f"etlrun: interrupted; resume with: etlrun trainer.resume={folder}\n"


@pytest.mark.slow
def test_json_of_a_sweep_is_its_results_and_quiet_leaves_the_jobs_that_fail(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ["-m", *emulated(tiny, "dataset.version=null,9.9.9", *QUICK), f"hydra.sweep.dir={folder}"]
    status, out, err = answered(tmp_path, *words, "--json", "--quiet")
    results = json.loads((folder / "results.json").read_text())
    assert (status, document(out)) == (1, {"status": "failed", **results})
    (error,) = err.splitlines()
    assert error.startswith("2/2 1 dataset.version=9.9.9: failed, ")
    assert "dataset.version: found 9.9.9, which is not in " in error

    status, out, err = answered(tmp_path, "-m", f"sweep.resume={folder}", "--json")
    assert (status, document(out)) == (1, {"status": "failed", **json.loads((folder / "results.json").read_text())})
    assert err.splitlines()[0].startswith("sweep     ")
    assert err.endswith(f"report    {folder}/report.html\n")


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_what_hydra_answers_alone_is_refused_with_them(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main([option, "--cfg", "job"])
    fault = f"{option}: found --cfg; expected a run or a sweep\n    -> leave out {option}"
    printed = capsys.readouterr()
    found = [Fault(option, "--cfg", "a run or a sweep", f"leave out {option}").values]
    assert (ended.value.code, printed.err) == (2, f"etlrun: 1 fault\n  {fault}\n")
    assert (document(printed.out) if printed.out else {}) == (
        {"status": "failed", "exit_status": 2, "error": fault, "faults": found} if option == "--json" else {}
    )


def test_a_config_named_quiet_and_an_override_are_what_they_are(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "quiet.yaml").write_text("defaults: [config, _self_]\ntrainer: {epochs: 2}\n")
    folder = tmp_path / "run"
    words = ["--config-name", "quiet", "--config-dir", "own", f"hydra.run.dir={folder}"]
    mine = [word for word in emulated(tiny) if not word.startswith("trainer.epochs")]
    assert answered(tmp_path, *mine, *words, "--quiet") == (0, "", "")
    summary = summary_of(folder)
    assert (summary["config_name"], len(summary["epochs"])) == ("quiet", 2)
    assert not [word for word in summary["overrides"] if "--" in word]


def _loudly(words: list[str]) -> None:
    """Run `etlrun` with libraries that print."""
    real = launch.start

    def loud(*given: Any) -> None:
        os.write(1, b"from a library\n")
        print("from Python")
        real(*given)

    launch.start = loud  # type: ignore[assignment] # its arguments are passed on as they are
    cli.main(words)


def test_a_library_that_prints_on_standard_output_leaves_the_document_alone(tiny: Path, tmp_path: Path) -> None:
    words = [*emulated(tiny), "--json", "--quiet", f"hydra.run.dir={tmp_path / 'run'}"]
    status, out, err = finish(Forked(partial(_loudly, words), tmp_path))
    assert (status, document(out)["status"]) == (0, "completed")
    assert sorted(err.splitlines()) == ["from Python", "from a library"]
