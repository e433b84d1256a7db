"""GPUs of this machine, and which of them each job of a sweep sees; the driver is replaced, the processes are real."""

from pathlib import Path

import pytest

from etlrun.sweep.engine import Seat, seats
from etlrun.system.machine import Gpu, driver_gpus, gpu_ids
from tests.drivers import with_gpus, without_driver
from tests.runs import summary_of
from tests.sweeps import Sweep

PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that this machine says of its GPUs."""
    for variable in ("CUDA_VISIBLE_DEVICES", PREALLOCATE):
        monkeypatch.delenv(variable, raising=False)


def own(*words: str) -> list[Seat]:
    return [Seat(environment={"CUDA_VISIBLE_DEVICES": word}, jobs=1) for word in words]


def test_each_job_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "Tesla T4", "Tesla T4", "Tesla T4")
    assert seats(2) == own("GPU-0000", "GPU-1000")
    assert seats(3) == own("GPU-0000", "GPU-1000", "GPU-2000")
    assert seats(1) == [Seat(environment={}, jobs=1)]


def test_a_list_of_gpus_that_is_set_is_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "Tesla T4", "Tesla T4", "Tesla T4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-0000")
    assert seats(2) == own("2", "GPU-0000")


def test_where_gpus_are_few_as_few_jobs_as_can_be_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "Tesla T4", "Tesla T4")
    first, second, third = seats(3)
    assert first == third == Seat(environment={"CUDA_VISIBLE_DEVICES": "GPU-0000", PREALLOCATE: "false"}, jobs=2)
    assert [second] == own("GPU-1000")
    monkeypatch.setenv(PREALLOCATE, "true")
    assert seats(3)[0] == Seat(environment={"CUDA_VISIBLE_DEVICES": "GPU-0000"}, jobs=2)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_without_gpus_nothing_is_set(hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = [Seat(environment={}, jobs=1)] * 2
    with_gpus(monkeypatch, "Tesla T4", "Tesla T4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert seats(2) == nothing
    without_driver(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert seats(2) == nothing


@pytest.mark.parametrize("seen", [["GPU-0000", "GPU-1000"], ["GPU-0000", "GPU-0000"]])
def test_jobs_in_flight_see_different_gpus_or_are_said_to_share_one(
    seen: list[str], sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = len(set(seen))
    with_gpus(monkeypatch, *["Tesla T4"] * gpus)
    assert sweep("load.prefetch=0,1", "sweep.max_jobs_in_flight=2") == 0
    summaries = [summary_of(tmp_path / "sweep" / name) for name in "01"]
    assert [summary["host"]["cuda_visible_devices"] for summary in summaries] == seen
    assert [summary["jobs_on_gpu"] for summary in summaries] == [2 // gpus] * 2
    shared = "up to 2 jobs that use a GPU share it (sweep.max_jobs_in_flight)\n"
    assert (shared in capsys.readouterr().out) == (gpus == 1)
    # These computed on a CPU, and shared none.
    assert not any("share this GPU" in remark for summary in summaries for remark in summary["remarks"])


FIRST = Gpu(uuid="GPU-0000", name="Tesla T4", capability=(7, 5))
SECOND = Gpu(uuid="GPU-1000", name="NVIDIA L4", capability=(8, 9))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A driver with two GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with_gpus(monkeypatch, "Tesla T4", "NVIDIA L4")
    return monkeypatch


@pytest.mark.usefixtures("two")
def test_all_gpus_of_the_driver_are_visible_where_none_is_hidden() -> None:
    assert driver_gpus() == [FIRST, SECOND]
    assert gpu_ids() == ["GPU-0000", "GPU-1000"]


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("1", ["1"]),
        (" 1, 0", ["1", "0"]),
        ("GPU-1", ["GPU-1"]),
        ("MIG-7", ["MIG-7"]),
        ("0,-1,1", ["0"]),
        ("", []),
        ("-1", []),
        ("none", []),
    ],
)
def test_gpus_that_are_hidden_are_left_out(value: str, ids: list[str], two: pytest.MonkeyPatch) -> None:
    two.setenv("CUDA_VISIBLE_DEVICES", value)
    assert driver_gpus() == [FIRST, SECOND]
    assert gpu_ids() == ids


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    without_driver(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert (driver_gpus(), gpu_ids()) == ([], [])
