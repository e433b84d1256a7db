import pytest

from etlrun.measure.watched import GpuUse
from etlrun.system.machine import Gpu, driver_gpus, gpu_ids, visible_gpus
from tests.drivers import with_gpus, without_driver

FIRST = Gpu(index=0, uuid="GPU-0000", name="Tesla T4", capability=(7, 5))
SECOND = Gpu(index=1, uuid="GPU-1000", name="NVIDIA L4", capability=(8, 9))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A driver with two GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with_gpus(monkeypatch, "Tesla T4", "NVIDIA L4")
    return monkeypatch


@pytest.mark.usefixtures("two")
def test_all_gpus_of_the_driver_are_visible_where_none_is_hidden() -> None:
    assert driver_gpus() == visible_gpus() == [FIRST, SECOND]
    assert gpu_ids() == ["GPU-0000", "GPU-1000"]


@pytest.mark.parametrize(
    ("value", "visible", "ids"),
    [
        ("1", [SECOND], ["1"]),
        (" 1, 0", [FIRST, SECOND], ["1", "0"]),
        ("GPU-1", [SECOND], ["GPU-1"]),
        ("MIG-7", [], ["MIG-7"]),
        ("0,-1,1", [FIRST], ["0"]),
        ("", [], []),
        ("-1", [], []),
        ("none", [], []),
    ],
)
def test_gpus_that_are_hidden_are_left_out(
    value: str, visible: list[Gpu], ids: list[str], two: pytest.MonkeyPatch
) -> None:
    two.setenv("CUDA_VISIBLE_DEVICES", value)
    assert driver_gpus() == [FIRST, SECOND]
    assert (visible_gpus(), gpu_ids()) == (visible, ids)


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    without_driver(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert (driver_gpus(), visible_gpus(), gpu_ids()) == ([], [], [])


def test_only_the_use_of_visible_gpus_is_a_runs_own(two: pytest.MonkeyPatch) -> None:
    two.setenv("CUDA_VISIBLE_DEVICES", "GPU-1000")
    use = GpuUse()
    use.open()
    use.look()
    use.close()
    assert use.described() == [{"index": 1, "utilisation_percent": 51, "peak_memory_bytes": None}]
