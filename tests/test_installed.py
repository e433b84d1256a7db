"""Steps, sources and versions of other packages, the code that counts for a cache's key, and builders of TFDS."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from importlib.metadata import EntryPoint, PackageNotFoundError
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets as tfds

from etlrun.measure.digest import Digest
from etlrun.sources.tfds import open_builder
from etlrun.stages import STAGES, UNUSABLE, Stages
from etlrun.stages.dataset import TfdsDataset
from etlrun.stages.installed import breach, with_installed
from etlrun.stages.plugins import STEPS as GROUP
from etlrun.stages.plugins import digest_of, source
from etlrun.system.errors import Fault, WorldError
from etlrun.system.loading import version_of
from tests.configs import TENSORFLOW, spec_of
from tests.golden import Case, Golden, Says, cases
from tests.pastes import fenced
from tests.runs import emulated, finish_well, small, start, summary_of

OF_ALL = """
import sys
from etlrun.sources.tfds import open_builder
from tests.configs import spec_of
for words in (["dataset.data_dir=nowhere"], sys.argv[1:]):
    open_builder(spec_of(*words).dataset)
print([name for name in sys.modules if name.startswith("tensorflow_datasets.image_classification")])
"""


@pytest.fixture
def versions(tiny: Path, tmp_path: Path) -> Path:
    """The data_dir of a dataset in three versions, of which the highest is not the last by its name."""
    (home,) = tiny.glob("*/*/dataset_info.json")
    name, version = home.parent.parent.name, home.parent.name
    for other in (version, "4.2.0", "4.10.0"):
        shutil.copytree(home.parent, tmp_path / name / other)
        info = json.loads(home.read_text())
        (tmp_path / name / other / "dataset_info.json").write_text(json.dumps({**info, "version": other}))
    return tmp_path


def _dataset(data_dir: Path, version: str) -> TfdsDataset:
    found = spec_of(*small(data_dir), f"dataset.version={version}").dataset
    assert isinstance(found, TfdsDataset)
    return found


@pytest.mark.parametrize(("asked", "found"), [("4.*.*", "4.10.0"), ("4.2.*", "4.2.0"), ("4.10.0", "4.10.0")])
def test_it_is_that_of_tfds(asked: str, found: str, versions: Path) -> None:
    dataset = _dataset(versions, asked)
    ours, theirs = open_builder(dataset), tfds.builder(f"{dataset.name}:{asked}", data_dir=str(versions))
    assert type(ours) is type(theirs)
    assert (ours.data_path, ours.info.full_name) == (theirs.data_path, theirs.info.full_name)
    assert ours.data_path == versions / dataset.name / found


def test_a_version_that_is_not_there_is_refused_as_by_tfds(versions: Path) -> None:
    dataset = _dataset(versions, "5.0.0")
    with pytest.raises(
        WorldError, match=r"^dataset.version: found 5.0.0, which is not in \S+; expected a version that is prepared: "
    ):
        open_builder(dataset)


def test_the_code_of_other_datasets_is_not_imported(versions: Path) -> None:
    command = [sys.executable, "-c", OF_ALL, *small(versions), "dataset.version=4.*.*"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


def install(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_tensorflow_has_a_version_under_each_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(PackageNotFoundError, match=r"^No package metadata was found for tensorflow$"):
        version_of("tensorflow")
    install(tmp_path, "tensorflow-cpu", "2.21.0")
    assert version_of("tensorflow") == "2.21.0"
    install(tmp_path, "tensorflow", "2.20.0")
    assert version_of("tensorflow") == "2.20.0"
    with pytest.raises(PackageNotFoundError):
        version_of("keras")


GREY = """from dataclasses import dataclass
from typing import Annotated, ClassVar

from etlrun.stages.base import DATA, Number
from etlrun.stages.flow import Feature
from etlrun.stages.image import require_decoded
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step


@dataclass(frozen=True, kw_only=True)
class Grey(Step):
    \"\"\"Moves each pixel towards its brightness by `strength`.\"\"\"

    path: ClassVar[str] = "transform.grey"

    strength: Annotated[Number, DATA]

    def gives(self, incoming: Feature) -> Feature:
        require_decoded(incoming)
        return incoming.replace(dtype="float32")

    @staticmethod
    def op(image, *, strength):
        \"\"\"float32, same shape and range.\"\"\"
        image = tf.cast(image, tf.float32)
        return image + strength * (tf.reduce_mean(image, axis=-1, keepdims=True) - image)
"""
STEPS = "[decode,resize,grey,scale_minus_one_one]"
WORDS = (f"transform.steps={STEPS}", f"transform.eval_steps={STEPS}", "+transform.grey.strength=1.0")


def calling(text: str = "tf.reduce_mean(image)", more: str = "") -> str:
    """The same package, whose step calls a function of its module."""
    function = f"{more}\n\ndef own_mean_of(image):\n    return {text}\n\n\n@dataclass"
    called = GREY.replace("@dataclass", function, 1).replace(
        "tf.reduce_mean(image, axis=-1, keepdims=True)", "own_mean_of(image)"
    )
    return called.replace('"transform.grey"\n', '"transform.grey"\n    calls = (own_mean_of,)\n')


def installed(folder: Path, text: str = GREY, value: str = "greyed:Grey", name: str = "grey") -> Path:
    """A folder of libraries with one package that has a step, or a source."""
    info = folder / "greyed-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{value.partition(':')[0]}.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greyed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")
    return folder


def registered(value: str = "greyed:Grey") -> tuple[Stages, tuple[Fault, ...]]:
    """The stages with those of the package as its file is now, and its faults."""
    sys.modules.pop("greyed", None)
    found = with_installed(STAGES, [EntryPoint(name="grey", value=value, group=GROUP)])
    sys.modules.pop("greyed", None)
    return found


def told(folder: Path, *words: str, status: int = 0) -> str:
    """What a command says in a process of its own, with the package installed, and ends with that status."""
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    answer = subprocess.run(
        [sys.executable, "-m", "etlrun", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == status, answer.stderr
    return answer.stdout or answer.stderr


@pytest.mark.slow
def test_plans_programs_reviews_and_checks_know_a_step_that_is_installed(tmp_path: Path) -> None:
    folder = installed(tmp_path / "site")
    plan = told(folder, "plan", "--all", *WORDS)
    assert "     a. transform.grey                -> float32 [64, 64, 3] in [0, 255], label\n" in plan
    assert "          strength              1.0                  data\n" in plan
    program = told(folder, "config", "eject", *WORDS)
    assert "def grey(image, *, strength):\n" in program
    assert '    example["image"] = grey(example["image"], strength=1.0)\n' in program
    again = " ".join(WORDS).replace("=1.0", "=0.5")
    diff = told(folder, "diff", " ".join(WORDS), again)
    assert diff.startswith("changes the data, from transform.grey on\n  transform.grey.strength  1.0 -> 0.5  data")
    (folder / "mine" / "transform").mkdir(parents=True)
    (folder / "mine" / "transform" / "grey_64.yaml").write_text(
        f"# Grey.\ndefaults: [small_64, _self_]\nsteps: {STEPS}\neval_steps: {STEPS}\ngrey: {{strength: 1.0}}\n"
    )
    checked = told(folder, "check", "--config-dir", "mine")
    assert checked.splitlines()[-1].endswith(": no fault")


@pytest.mark.slow
def test_a_run_trains_on_what_an_installed_step_gives_and_its_cache_has_its_code(tiny: Path, tmp_path: Path) -> None:
    site = installed(tmp_path / "site")
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    words = emulated(tiny, *WORDS, "model.step_ms=0", "measure.digest=true", "cache=disk", "trainer.epochs=1")
    words += [f"cache.dir={tmp_path / 'caches'}"]
    two = ["-m", *words, "load.prefetch=0,1", f"hydra.sweep.dir={tmp_path / 'two'}"]
    folders = [tmp_path / "two" / "0", tmp_path / "two" / "1", tmp_path / "edited"]
    for text, command in (
        (GREY, two),
        (GREY.replace("image + strength", "image - strength"), [*words, f"hydra.run.dir={folders[-1]}"]),
    ):
        (site / "greyed.py").write_text(text)
        finish_well(start(command, tmp_path, PYTHONPATH=path))
    summaries = [summary_of(folder) for folder in folders]
    passes = [summary["cache"]["pipelines"]["train"]["passes"] for summary in summaries]
    digests = [summary["epochs"][0]["digest"] for summary in summaries]
    assert passes == [["read"], ["read"], ["filled"]]  # a sweep fills its caches first
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("case", cases("installed_steps"))
def test_a_package_whose_step_can_not_be_used_is_a_fault(
    case: Case, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, value = case.get("calling"), case.get("value", "greyed:Grey")
    text: str = case.get("text", GREY if calls is None else calling(*calls))
    for part, other in case.get("replace", {}).items():
        text = text.replace(part, other)
    if "within" in case.values:
        text = case["within"].format(text)
    monkeypatch.syspath_prepend(installed(tmp_path, text + case.get("end", ""), value))
    registry, faults = registered(value)
    assert registry == {group: dict(options) for group, options in STAGES.items()}
    golden(case, str(faults[0]).replace(str(tmp_path), "SITE"))


def test_bytecode_of_another_text_of_the_same_size_and_second_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, calling()))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path, found = tmp_path / "greyed.py", []
    for text, after_ns in ((calling(), 0), (calling(), 1), (calling("tf.reduce_prod(image)"), 2)):
        path.write_text(text)
        os.utime(path, ns=(10**18, 10**18 + after_ns))
        found.append(registered()[1])
    assert found[:2] == [(), ()]
    remedy = f"remove {cache_from_source(str(path))}, and start Python again"
    assert found[2][0].found == f"own_mean_of, which does not run the text of {path} ({remedy})"


def test_a_step_may_call_the_functions_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, calling()))
    registry, faults = registered()
    assert not faults
    step = registry["transform"]["grey"](strength=1.0)  # type: ignore[call-arg]
    assert [maker.__name__ for maker in step.makers] == ["op", "own_mean_of"]


def test_the_steps_of_this_package_are_as_those_of_others_have_to_be() -> None:
    assert not UNUSABLE
    beside = (
        "Decode.op(image: 'tf.Tensor') -> 'tf.Tensor', whose parameters are not one and, keyword-only, "
        "['library', 'fast', 'processes']"
    )
    assert [*filter(None, map(breach, STAGES["transform"].values()))] == [beside]  # which libjpeg-turbo has


@pytest.mark.slow
def test_a_package_that_is_imported_before_etlrun_is_the_one_that_is_registered(tmp_path: Path) -> None:
    look = "from greyed import Grey\nfrom etlrun.stages import STAGES, UNUSABLE\n"
    look += "print(STAGES['transform']['grey'] is Grey, UNUSABLE)"
    paths = os.pathsep.join([str(installed(tmp_path)), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True ()\n"


def lined(folder: Path) -> list[str]:
    """Lines of two numbers and a class, the package that reads them, and the arguments that select it."""
    installed(folder, fenced("extending.md", "class Lined"), "lined:Lined", "lined")
    (folder / "DIR" / "dataset").mkdir(parents=True)
    (folder / "DIR" / "dataset" / "lined.yaml").write_text(fenced("extending.md", "name: lined"))
    (folder / "points.csv").write_text("".join(f"{number},{number / 2},{number % 2}\n" for number in range(40)))
    words = ["--config-dir", "DIR", "dataset=lined", "dataset.file=points.csv", "extract=sequential"]
    words += ["transform.steps=[]", "transform.eval_steps=[]", "load.batch_size=8"]
    return [*words, "trainer=drain", "model=emulated", "model.step_ms=0", "hydra.run.dir=run"]


@pytest.mark.slow
def test_plans_and_runs_know_a_source_that_is_installed(tmp_path: Path, says: Says) -> None:
    folder = tmp_path / "site"
    words = [*lined(folder), "cache=disk", f"cache.dir={tmp_path}/caches"]
    plan = told(folder, "plan", "--all", *words)
    assert "float32 [2], label" in plan
    assert "file points.csv data" in " ".join(plan.split())
    told(folder, *words)
    summary = summary_of(folder / "run")
    assert (summary["status"], summary["dataset"]["name"]) == ("completed", "points.csv")
    assert [epoch["examples"] for epoch in summary["epochs"]] == [32]
    says(told(folder, "plan", *words, "dataset.split=test", status=1))
    text = (folder / "lined.py").read_text()
    (folder / "lined.py").write_text(re.sub("    printed: .*\n", "", text))
    says(told(folder, "config", "eject", *words, status=2))


@pytest.mark.slow
def test_a_program_reads_a_source_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """Its batches are those of the run; there is none if a function of the source is missing."""
    folder = tmp_path / "site"
    words = [*lined(folder), "cache=none", "measure.digest=true"]
    printed = folder / "lined_printed.py"
    printed.write_text(fenced("extending.md", "def records_of"))
    program = told(folder, "config", "eject", *words)
    assert "etlrun." not in program.split('"""\n', 1)[1]
    (folder / "program.py").write_text(program)
    told(folder, *words)
    monkeypatch.chdir(folder)
    digest = Digest()
    for numbers, labels in islice(runpy.run_path("program.py")["train_dataset"](), 4):
        digest.add(numbers.numpy(), labels.numpy())
    assert digest.taken() == summary_of(folder / "run")["epochs"][0]["digest"]
    printed.write_text(printed.read_text().replace("def labels_of", "def labels"))
    says(told(folder, "config", "eject", *words, status=2))


ROOT = Path(__file__).resolve().parent.parent


def test_the_source_of_a_step_is_that_of_its_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default counts by its value; of an edit nothing is seen until the file is imported again."""
    text = calling(more="HALF = 0.5").replace("of(image):", "of(image, by=HALF):")
    monkeypatch.syspath_prepend(installed(tmp_path, text))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for edit in (("", ""), ("tf.cast", "1.0 * tf.cast"), ("HALF = 0.5", "HALF = 0.25")):
        text = text.replace(*edit) if edit[0] else text
        (tmp_path / "greyed.py").write_text(text)
        registry, faults = registered()
        assert not faults
        (tmp_path / "greyed.py").write_text(f"# Another one, with lines elsewhere.\n{GREY}")
        step: Any = registry["transform"]["grey"]
        found.append(([source(made) for made in step(strength=1.0).makers], digest_of(step(strength=1.0).makers)))
    texts, digests = zip(*found, strict=True)
    assert [each[0].count("1.0 * tf.cast") for each in texts] == [0, 1, 1]
    assert texts[1] == texts[2]
    assert texts[0][1] == "def own_mean_of(image, by=HALF):\n    return tf.reduce_mean(image)"
    assert len({*digests}) == 3


def passes_of(folder: Path) -> list[str]:
    passes: list[str] = summary_of(folder)["cache"]["pipelines"]["train"]["passes"]
    return passes


@pytest.mark.slow
def test_an_edit_while_a_sweep_runs_is_another_cache_for_later_runs(tiny: Path, tmp_path: Path, says: Says) -> None:
    """All jobs of a sweep are made by the code that it began with, whatever the files say by then."""
    checkout = tmp_path / "checkout"
    for name in ("etlrun", "conf"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    quick = (TENSORFLOW, "model.step_ms=0", "dataset.eval_split=null", "measure.digest=true", "load.shuffle_buffer=0")
    words = emulated(tiny, "cache=disk", f"cache.dir={tmp_path / 'caches'}", *quick)
    sweep, after, last = tmp_path / "sweep", tmp_path / "after", "dataset.split='train[:20]'"
    splits = "dataset.split='train[:16]','train[:20]'"
    process = start(["-m", *words, splits, f"hydra.sweep.dir={sweep}"], tmp_path, PYTHONPATH=str(checkout))
    deadline = time.monotonic() + 240
    while not (sweep / "0" / "plan.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    path = checkout / "etlrun/stages/image.py"
    path.write_text(path.read_text().replace("tf.round(image) if", "255.0 - tf.round(image) if"))
    finish_well(process)
    finish_well(start([*words, last, f"hydra.run.dir={after}"], tmp_path, PYTHONPATH=str(checkout)))
    says([passes_of(folder) for folder in (sweep / "1", after)])  # a sweep fills its caches first
    by_old_code, by_new_code = (summary_of(folder)["epochs"][0]["digest"] for folder in (sweep / "1", after))
    assert by_old_code != by_new_code
