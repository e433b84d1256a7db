import gc
import importlib.metadata
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401 - its plugins, imported later, take what is frozen for lost, with a warning
import pytest

from tests.golden import Case, Golden, Said, Says, as_said

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

# A shell starts what it runs in the background with Ctrl-C ignored, and processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(os.environ.get("ETLRUN_SHARED", Path(__file__).parents[2] / "shared"))
Once = Callable[[str, Callable[[Path], object]], Path]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write golden files anew, as tests/golden/__init__.py says")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spare `-m slow`, `-m smoke` and `-m "needs and not slow"` importing the modules that have none of these tests."""
    chosen = config.option.markexpr.removesuffix(" and not slow")
    if chosen not in ("slow", "smoke", "needs") or collection_path.suffix != ".py":
        return None
    return f"pytest.mark.{chosen}" not in collection_path.read_text(encoding="utf-8") or None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is marked with the names of packages, of which one is not installed."""
    for name in (name for mark in item.iter_markers("needs") for name in mark.args):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Leave out what is marked `slow` where nothing is chosen: plain `pytest`; files that are named run whole.

    Golden files are written by one process.
    """
    if config.option.update:
        config.option.numprocesses = 0
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
        config.option.markexpr or config.option.keyword
    ):
        config.option.markexpr = "not slow"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many as cores; one more where slow tests run, many of which wait for processes of their own."""
    from etlrun.system.machine import cores

    return cores() + (0 if "not slow" in config.option.markexpr else 1)


def pytest_collection_finish() -> None:
    """Spare later collections all modules, those of TensorFlow among them: they took a tenth of all time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def caches_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches on disk of runs that name no folder for them, in processes of their own too, stay out of the home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_jobs() -> Iterator[None]:
    """Processes that are forked, jobs of sweeps among them, run as quickly as runs in this process."""
    from etlrun.sweep import engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_PRELOADED", [*engine._PRELOADED, "tests.quick_jobs"])
        yield


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """`once(name, make)` gives a folder that `make` fills once for all workers: whoever needs it first makes it.

    It is to be read alone: a test that writes into it takes a copy (`shutil.copytree`).
    """
    from etlrun.system.files import Lock

    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "once"

    def made(name: str, make: Callable[[Path], object]) -> Path:
        lock, done = Lock(shared / f"{name}.lock"), shared / f"{name}.done"
        lock.acquire(timeout_s=600)
        try:
            if not done.exists():
                (shared / name).mkdir()
                make(shared / name)
                done.touch()
        finally:
            lock.release()
        return shared / name

    return made


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compares what is found with what a golden file, or a table of messages, has; `--update` writes it there."""

    def compare(where: Path | Case, found: str) -> None:
        if pytestconfig.option.update and where.read_text() != found:
            where.write_text(found)
        else:
            assert found == where.read_text()

    return compare


@pytest.fixture
def says(request: pytest.FixtureRequest) -> Iterator[Says]:
    """Compares what a test finds with what is kept under its name; `--update` writes it."""
    said, found = Said.kept(request.path, request.node.name), []

    def compare(value: object, **names: object) -> None:
        text = as_said(value)
        if "tmp_path" in request.fixturenames:
            names["DIR"] = request.getfixturevalue("tmp_path")
        for name, of in names.items():
            text = text.replace(str(of), name)
        found.append(text)
        if not request.config.option.update:
            assert text == (said.texts[len(found) - 1 :] or ["no text yet: `pytest --update` writes it"])[0]

    yield compare
    if request.config.option.update and found != said.texts:
        said.write(found)


def _data(name: str, writer: str, **given: int) -> Any:
    """The folder that a function of `tests` fills, imported where it is used: some register datasets with TFDS."""
    module, function = writer.split(".")

    @pytest.fixture(scope="session", name=name)
    def made(once: Once) -> Path:
        return once(name, partial(getattr(import_module(f"tests.{module}"), function), **given))

    return made


tiny = _data("tiny", "pictures.write_tiny_pictures")  # a data_dir of 48 images in 4 shards, as TFDS writes them
many = _data("many", "pictures.write_tiny_pictures", count=480)
boxes = _data("boxes", "boxes.write_boxes")  # a data_dir of 50 boxes, each a few numbers, in 4 shards
table = _data("table", "tables.write_houses")  # a table of 200 houses, with the folder of its kept columns
reviews = _data("reviews", "texts.write_reviews")  # `reviews.jsonl`
signals = _data("signals", "lists.write_signals")  # `signals.parquet`, a table with lists


@pytest.fixture(scope="session")
def sample(once: Once) -> Path:
    """The data_dir of the sample dataset."""
    from etlrun.sources.base import open_source
    from tests.configs import spec_of

    return once("sample", lambda data_dir: open_source(spec_of(f"dataset.data_dir={data_dir}").dataset))


@pytest.fixture(scope="module")
def run(once: Once, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch on the tiny dataset with its model, trained once for all; a copy for the module.

    Its validation has two batches, of 8 and of 2.
    """
    from tests.trained import trained_run

    canonical = once("trained", lambda folder: trained_run(folder, tiny, "cache=none"))
    return Path(shutil.copytree(canonical, tmp_path_factory.mktemp("trained") / "run"))


@pytest.fixture(scope="session")
def measured(once: Once, many: Path) -> tuple[Path, dict[str, Any]]:
    """A run of three epochs with an emulated accelerator, made once for all workers, and its summary.

    Its images are too many to be read ahead before its first batch, after which the read stages would have no figures.
    """
    from tests.runs import emulated, run_here, summary_of

    folder = once("measured", lambda folder: run_here(folder, emulated(many, "trainer.epochs=3", "load.batch_size=20")))
    summary = summary_of(folder)
    assert summary["status"] == "completed"
    return folder, summary


@pytest.fixture
def pipeline(tiny: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Builds the training pipeline of a small run with these overrides; all of a test share their caches on disk."""
    from etlrun.run.backend import seed_all
    from tests.configs import plan_of
    from tests.pipelines import training_pipeline
    from tests.runs import small

    with ExitStack() as stack:

        def build(*overrides: str) -> Any:
            plan = plan_of(*small(tiny, f"cache.dir={tmp_path / 'caches'}", *overrides))
            seed_all(plan.spec.trainer.seed)
            return stack.enter_context(training_pipeline(plan))

        yield build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 images of two classes in a folder."""
    from tests.own import write_pets

    return write_pets(tmp_path / "pets")


@pytest.fixture
def server() -> Iterator[Any]:
    """A `tests.servers.Server` of files on this machine."""
    from tests.servers import serving

    with serving() as found:
        yield found


@pytest.fixture(scope="session")
def photos() -> Path:
    """The data_dir of real photos, where this machine has them."""
    folder = SHARED / "data" / "tfds"
    if not folder.is_dir():
        pytest.skip(f"no real photos in {folder}; set ETLRUN_SHARED")
    return folder


def _telling(command: str) -> Any:
    """What a command prints, and its exit status."""

    @pytest.fixture
    def telling(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
        from etlrun.cli.parsers import call
        from etlrun.system.errors import EtlrunError

        def tell(*words: str, status: int = 0) -> str:
            ended = 0
            try:
                call(command, list(words))
            except SystemExit as end:
                ended = int(end.code or 0)
            except EtlrunError as error:
                ended = error.status
            assert ended == status
            return capsys.readouterr().out

        return tell

    return telling


told, verified = _telling("diff"), _telling("verify")


@pytest.fixture
def sweep(tiny: Path, tmp_path: Path) -> Callable[..., int]:
    """Runs a sweep of small runs in `tmp_path / "sweep"`; gives its exit status."""
    from tests.runs import emulated
    from tests.sweeps import QUICK, ended

    def run(*overrides: str, base: Sequence[str] = QUICK) -> int:
        given = {word.split("=")[0] for word in overrides}
        words = [word for word in base if word.split("=")[0] not in given]
        return ended([*emulated(tiny, *words, *overrides), f"hydra.sweep.dir={tmp_path / 'sweep'}"])

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the pages of a module, where there is one."""
    from tests.pages import chromium  # imports Selenium

    with chromium() as browser:
        yield browser


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sound configs of one's own, in the working directory."""
    from tests.own_configs import SOUND, write

    monkeypatch.chdir(tmp_path)
    for name, text in SOUND.items():
        write(tmp_path / "mine" / name, text)
    return tmp_path / "mine"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three sound configs in `mine`, in a repository that is the working directory."""
    from tests.repository import Repository

    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made
