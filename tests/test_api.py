"""The Python API without a training: what is imported, plans, comparisons, loaded runs, and what a notebook shows."""

import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import etlrun
from etlrun.cli.main import main
from etlrun.cli.parsers import call
from etlrun.record.record import Record
from etlrun.record.summary import Summary
from tests.configs import plan_of, raised
from tests.golden import Says
from tests.quick import quick_probes, shallow
from tests.runs import emulated
from tests.trained import ended, with_summary

PROGRAM = """\
from pathlib import Path

import etlrun

planned = etlrun.plan("experiment=parallel", config_dir=Path("own"))
reveal_type(planned.config)
reveal_type(planned.fit())
reveal_type(planned.datasets())
reveal_type(etlrun.diff(planned, "load.prefetch=1").changes_data)
found = etlrun.load("outputs")
if isinstance(found, etlrun.Run):
    reveal_type(found.predict("a.jpg", [{"area": 3.0}])[0].probabilities)
    reveal_type(found.evaluate("dataset.split=test").loss)
    reveal_type(found.verdict)
else:
    reveal_type(found.best)
    reveal_type(found.results[0].examples_per_s)
try:
    etlrun.plan("a=1")
except etlrun.ConfigError as error:
    reveal_type(error.faults)
etlrun.nothing
"""
TYPES = [
    "dict[str, Any]", "etlrun.api.run.Run", "etlrun.run.session.Datasets", "bool", "typing.Mapping[str, float]",
    "float", "etlrun.record.summary.Verdict | None", "tuple[str, ...]", "float | None",
    "tuple[etlrun.system.errors.Fault, ...]",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.needs("mypy")
def test_a_program_sees_the_types(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "program.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert re.findall(r'Revealed type is "(.*)"', said) == TYPES
    errors = [line for line in said.splitlines() if ": error: " in line]
    assert errors == [
        f'program.py:{len(PROGRAM.splitlines())}: error: Module has no attribute "nothing"  [attr-defined]'
    ]


PAGE = Path(__file__).parents[1] / "docs" / "python.md"
SMALL = ("model.trainable=false", "transform.resize.size=[32,32]", "load.batch_size=16")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_examples_of_the_docs_run(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import etlrun

    planned = etlrun.plan
    words = (*SMALL, f"dataset.data_dir={sample}")
    monkeypatch.setattr(etlrun, "plan", lambda *given: planned(*given, *words))
    monkeypatch.chdir(tmp_path)
    quick_probes(monkeypatch)
    shallow(monkeypatch)
    names: dict[str, Any] = {}
    printed = []
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - our own docs
        printed.append(capsys.readouterr().out)
    first, look, trained, change, used = printed
    assert first == f"{names['planned'].fingerprint} 16\n"
    assert look == "(16, 32, 32, 3) <dtype: 'uint8'> (16,)\n"
    assert trained.startswith("completed ")
    assert change.splitlines()[:2] == ["False False True", "changes only the speed"]
    assert len(used.splitlines()) == 4


ANY: Any = etlrun
WRONG: dict[str, Callable[[], object]] = {
    "a list": lambda: ANY.plan(["load.prefetch=1"]),
    "a side that is refused": lambda: etlrun.diff("load.batch_size=0", "load.prefetch=1"),
    "a mapping": lambda: ANY.plan({"trainer.epochs": 2}),
    "sides": lambda: ANY.diff(1),
    "a side of keys": lambda: ANY.diff({"trainer.epochs": 2}),
    "a side of numbers": lambda: ANY.diff([1]),
    "no folder": lambda: ANY.load(None),
    "one string": lambda: etlrun.plan("trainer.epochs=2 load.prefetch=1"),
    "an empty string": lambda: etlrun.plan(""),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_told_what_is_expected(name: str, says: Says) -> None:
    says(raised(etlrun.ConfigError, WRONG[name]))


def test_a_run_says_what_it_can_not_predict_or_evaluate(run: Path, says: Says) -> None:
    loaded: Any = etlrun.load(run)
    for wrong in (np.zeros((2, 4, 4, 3)), tf.data.Dataset.range(2), None, 5):
        says(raised(etlrun.ConfigError, loaded.predict, wrong))
    says(raised(etlrun.ConfigError, loaded.evaluate, ["dataset.split=test"]))


def test_load_tells_what_is_no_run_a_file_and_a_summary_that_is_torn(tmp_path: Path, says: Says) -> None:
    summary, empty = tmp_path / "summary.json", tmp_path / "empty"
    summary.write_text("{")
    empty.mkdir()
    for path in (summary, tmp_path, empty):
        says(raised(etlrun.EtlrunError, etlrun.load, path))


@pytest.fixture
def mixed() -> Iterator[str]:
    """A policy of Keras that a cell of a notebook has set for all layers."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield keras.config.dtype_policy().name
    keras.config.set_dtype_policy(before)


def test_a_run_has_the_precision_of_its_plan(mixed: str, tiny: Path, tmp_path: Path) -> None:
    fitted = etlrun.plan(*emulated(tiny, "trainer.epochs=1")).fit(tmp_path / "run")
    assert fitted.summary.host is not None
    assert (fitted.summary.host.precision, keras.config.dtype_policy().name) == ("float32", mixed)


HEAVY = {"numpy", "pyarrow", "jinja2", "matplotlib", "rich", "tensorflow", "keras"}
OF_HEAVY = ("etlrun.run", "etlrun.remote", "etlrun.measure", "etlrun.datasets", "etlrun.cli")
ATTACK = "<script>alert(1)</script>"
MOST_BYTES = 60_000


def pickled(of: Any) -> Any:
    return pickle.loads(pickle.dumps(of))  # noqa: S301 - our own


def modules_of(program: str, cwd: Path) -> set[str]:
    """The modules of a new process that has run a program."""
    words = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    return {*subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True).stdout.split()}


def test_etlrun_itself_imports_nothing(tmp_path: Path) -> None:
    found = modules_of("import etlrun; dir(etlrun)", tmp_path) - modules_of("import typing, __future__", tmp_path)
    assert found == {"etlrun", "etlrun.system"}  # which has the version


def test_plans_and_their_comparison_import_neither_frameworks_nor_what_runs_need(tmp_path: Path) -> None:
    program = "import etlrun; etlrun.diff(etlrun.plan('load.prefetch=1'), 'load.prefetch=2').changes_speed"
    found = modules_of(program, tmp_path)
    assert {name for name in found if name.split(".")[0] in HEAVY or name.startswith(OF_HEAVY)} == set()


def test_the_names_are_those_of_all_and_others_are_none() -> None:
    assert {*etlrun.__all__} <= {*dir(etlrun)}
    assert all(getattr(etlrun, name).__module__.startswith("etlrun.") for name in etlrun.__all__)
    with pytest.raises(AttributeError, match="module 'etlrun' has no attribute 'fit'"):
        etlrun.fit  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.smoke
def test_a_plan_is_that_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    planned = etlrun.plan("experiment=parallel", "trainer.epochs=2")
    call("plan", ["experiment=parallel", "trainer.epochs=2"])
    assert str(planned) == planned.text() == capsys.readouterr().out
    assert planned.plan == plan_of("experiment=parallel", "trainer.epochs=2")
    assert planned.fingerprint == planned.plan.fingerprint
    assert planned.config["trainer"]["epochs"] == 2
    assert repr(planned) == f"<etlrun plan {planned.fingerprint} of experiment=parallel trainer.epochs=2>"
    assert repr(etlrun.plan()) == f"<etlrun plan {plan_of().fingerprint} of the default config>"
    again = pickled(planned)
    assert (again.plan, again.config, again.text()) == (planned.plan, planned.config, planned.text())
    planned.config["trainer"]["epochs"] = 0  # of the copy that it gives
    assert planned.config == again.config


def test_own_configs_are_found_wherever_the_program_goes(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = min(path.stem for path in (mine / "experiment").glob("*.yaml"))
    planned = etlrun.plan(f"experiment={name}", config_dir="mine")
    monkeypatch.chdir(mine)
    assert etlrun.plan(f"experiment={name}", config_dir=mine).fingerprint == planned.fingerprint
    assert planned._request.config_dir == str(mine)


def test_a_refused_config_raises_all_of_its_faults_and_leaves_hydra_as_it_was(says: Says) -> None:
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    with initialize_config_dir(str(Path(__file__).parent), version_base="1.3"):
        before = GlobalHydra.instance().hydra
        with pytest.raises(etlrun.ConfigError) as caught:
            etlrun.plan("cache=disc", "load.batch_size=0")
        assert GlobalHydra.instance().hydra is before
    says(str(caught.value))
    with pytest.raises(etlrun.EtlrunError) as other:
        etlrun.plan("dataset=folder", "dataset.dir=/nowhere").datasets()
    for error in (caught.value, other.value):
        again = pickled(error)
        assert (type(again), again.faults, str(again)) == (type(error), error.faults, str(error))


OLD, NEW = "experiment=parallel", "experiment=parallel load.prefetch=1"


@pytest.mark.parametrize("sides", [(OLD, NEW), ([OLD], NEW.split()), (etlrun.plan(OLD), etlrun.plan(*NEW.split()))])
def test_a_difference_is_that_of_the_command_line(sides: tuple[Any, Any], told: Any) -> None:
    found = etlrun.diff(*sides)
    assert str(found) == told(OLD, NEW)
    assert (found.changes_data, found.changes_order, found.changes_training) == (False, False, False)
    assert found.changes_speed
    assert repr(found) == f"<etlrun diff of {OLD} and {NEW}: changes only the speed>"
    assert str(pickled(found)) == str(found)


@pytest.mark.parametrize(
    ("word", "changed"),
    [
        ("transform.resize.size=[32,32]", {"data"}),
        ("load.shuffle_buffer=7", {"order", "training"}),
        ("load.prefetch=1", {"speed"}),
        ("trainer.learning_rate=0.1", {"training"}),
        ("", set()),
    ],
)
def test_what_changes_is_told_by_its_kind(word: str, changed: set[str]) -> None:
    found = etlrun.diff("", word)
    assert {kind for kind in ("data", "order", "training", "speed") if getattr(found, f"changes_{kind}")} == changed


def test_a_run_is_compared_with_what_its_overrides_compose_now(tmp_path: Path, told: Any, tiny: Path) -> None:
    folder = ended(tmp_path / "run", emulated(tiny))
    found = etlrun.diff(etlrun.load(folder))
    assert str(found) == told(str(folder))
    assert not found.review.changes


def test_a_run_has_its_summary_as_it_is_now_and_the_report_of_the_command_line(
    measured: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, summary = measured
    loaded = etlrun.load(str(folder))
    assert isinstance(loaded, etlrun.Run)
    assert loaded.summary == Summary.model_validate(summary)
    assert loaded.verdict == loaded.summary.verdict
    main(["report", str(folder)])
    printed = capsys.readouterr().out
    assert (
        f"{loaded.report()}report    {folder}/report.html\n" == f"{loaded}report    {folder}/report.html\n" == printed
    )
    assert repr(loaded) == f"<etlrun run {folder}: completed>"
    assert pickled(loaded).folder == folder


def test_a_run_whose_folder_is_removed_says_so(tmp_path: Path, tiny: Path, says: Says) -> None:
    loaded = etlrun.load(ended(tmp_path / "run", emulated(tiny)))
    shutil.rmtree(tmp_path / "run")
    assert repr(loaded) == f"<etlrun run {tmp_path / 'run'}: no summary>"
    with pytest.raises(etlrun.EtlrunError) as caught:
        _ = loaded.summary  # type: ignore[union-attr]
    says(str(caught.value))


def test_runs_in_a_folder_are_a_sweep(measured: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: Any) -> None:
    from etlrun.results import report

    for name in ("0", "1"):
        shutil.copytree(measured[0], tmp_path / name)
    loaded = etlrun.load(tmp_path)
    assert isinstance(loaded, etlrun.Sweep)
    assert [of.name for of in loaded.runs] == ["0", "1"]
    assert [of.status for of in loaded.results] == ["completed"] * 2
    assert loaded.best == loaded.decision.overrides == loaded.results[0].overrides
    report.publish(loaded.collected)
    assert f"{loaded}report    {tmp_path}/report.html\n" == capsys.readouterr().out
    assert repr(loaded) == f"<etlrun sweep {tmp_path}: 2 configs, 2 runs>"
    assert str(pickled(loaded)) == str(loaded)


def is_safe(html: str, *texts: str) -> bool:
    """Whether a page is small, needs nothing else, and has these texts escaped."""
    is_alone = not any(word in html for word in ("<script", "<link", "http:", "https:", "src="))
    return is_alone and len(html.encode()) < MOST_BYTES and all(text in html for text in texts)


ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


def test_a_notebook_shows_a_plan_with_its_values_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(ATTACK, "a").mkdir(parents=True)
    words = ["dataset=folder", f"dataset.dir='{ATTACK}'", "load.prefetch=1"]
    assert is_safe(etlrun.plan(*words)._repr_html_(), ESCAPED, "transform.resize", "fingerprint")
    assert is_safe(etlrun.diff(words, [*words[:1], "dataset.dir=b", *words[2:]])._repr_html_(), ESCAPED, "dataset.dir")


def test_a_notebook_shows_a_run_and_a_sweep_with_their_texts_escaped(
    measured: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    for name in ("0", ATTACK):
        shutil.copytree(measured[0], tmp_path / name)
        with_summary(
            tmp_path / name, remarks=[ATTACK] * 2_000, overrides=[f"a={ATTACK}{len(name)}"], error=ATTACK * 500
        )
    run: Any = etlrun.load(tmp_path / ATTACK)
    assert is_safe(run._repr_html_(), ESCAPED, "1,980 more", "examples/s")
    assert repr(run.summary) == f"<etlrun summary: completed, {len(measured[1]['epochs'])} epochs>"
    loaded: Any = etlrun.load(tmp_path)
    assert is_safe(loaded._repr_html_(), ESCAPED, str(tmp_path))
    assert repr(loaded.decision) == f"<etlrun decision: {loaded.decision.words}>"


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_a_notebook_shows_a_run_that_has_not_completed(status: str, tmp_path: Path, tiny: Path) -> None:
    loaded = etlrun.load(ended(tmp_path / "run", emulated(tiny), status=status, model=None))
    assert is_safe(loaded._repr_html_(), status, str(tmp_path / "run"))


def test_a_run_in_a_folder_of_another_is_refused_before_it_begins(tmp_path: Path, tiny: Path, says: Says) -> None:
    Record.create(tmp_path / "run", {}, [])
    says(raised(etlrun.EtlrunError, etlrun.plan(*emulated(tiny)).fit, tmp_path / "run"))
