import gc
import importlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

# A shell starts what it runs in the background with Ctrl-C ignored, and processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(os.environ.get("ETLRUN_SHARED", Path(__file__).parents[2] / "shared"))


LONGEST = (
    "test_docs", "test_graph", "test_digest", "test_sweep", "test_eject", "test_turbo", "test_engine", "test_exercise",
    "test_cli", "test_cache_runs", "test_photos", "test_plugins", "test_backends", "test_page", "test_sources",
    "test_measures", "test_claims", "test_identity", "test_resumed_sweeps", "test_features", "test_installed",
    "test_full_shuffle", "test_any_example", "test_resume", "test_code", "test_codec", "test_sweep_quality",
    "test_resume_steps", "test_optimization", "test_application_runs", "test_predict", "test_evaluate", "test_export",
)  # fmt: skip
"""Modules of half a minute and more, those that wait among those that compute; what begins last runs on one core."""


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for processes of their own, and for accelerators."""
    from etlrun.system.machine import cores

    return cores() + 1


def pytest_collection_finish() -> None:
    """Spare later collections all modules, those of TensorFlow among them: they took a tenth of all time."""
    importlib.import_module(
        "hypothesis"
    )  # whose plugins, imported later, take what was frozen for lost, with a warning
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these modules before all others, which stay as pytest-randomly has shuffled them."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(scope="session", autouse=True)
def caches_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches on disk of runs that name no folder for them, in processes of their own too, stay out of the home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_jobs() -> Iterator[None]:
    """Processes that are forked, jobs of sweeps among them, run as quickly as runs in this process."""
    from etlrun.sweep import process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_PRELOADED", [*process._PRELOADED, "tests.quick_jobs"])
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data_dir of 48 images in 4 shards, as TFDS writes them."""
    from tests.pictures import write_tiny_pictures

    data_dir = tmp_path_factory.mktemp("tfds")
    write_tiny_pictures(data_dir)
    return data_dir


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data_dir of the sample dataset, made once for all workers: whoever needs it first makes it."""
    from etlrun.sources.open import open_source
    from tests.configs import spec_of

    own = tmp_path_factory.getbasetemp()
    data_dir = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "sample"
    open_source(spec_of(f"dataset.data_dir={data_dir}").dataset)
    return data_dir


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data_dir of 50 boxes, each a few numbers, in 4 shards, as TFDS writes them."""
    from tests.boxes import write_boxes

    data_dir = tmp_path_factory.mktemp("boxes")
    write_boxes(data_dir)
    return data_dir


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 images of two classes in a folder."""
    from tests.own import write_pets

    return write_pets(tmp_path / "pets")


@pytest.fixture(scope="session")
def photos() -> Path:
    """The data_dir of real photos, where this machine has them."""
    folder = SHARED / "data" / "tfds"
    if not folder.is_dir():
        pytest.skip(f"no real photos in {folder}; set ETLRUN_SHARED")
    return folder


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """What `etlrun diff` prints, and its exit status."""

    def tell(*words: str, status: int = 0) -> str:
        ended = 0
        from etlrun.cli import diff

        try:
            diff.main(list(words))
        except SystemExit as end:
            ended = int(end.code or 0)
        assert ended == status
        return capsys.readouterr().out

    return tell


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
