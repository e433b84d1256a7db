"""What a run says of what it computes on. The driver's and the backend's lists of GPUs are replaced; runs are real."""

import os
from pathlib import Path

import psutil
import pytest

from etlrun.run import backend
from etlrun.system.machine import cores, rounded
from tests.configs import composed
from tests.drivers import with_gpus
from tests.runs import emulated, finish, run_here, small, start

QUICK = ("model.step_ms=0", "dataset.eval_split=null", "cache=none")
MACHINE = f"{cores()} core{'s' if cores() > 1 else ''}, {rounded(psutil.virtual_memory().total)}"


def seeing(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Have the backend see GPUs of these names."""
    patch.setattr(backend, "accelerators", lambda: list(names))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A driver with a GPU that the backend doesn't see, without its CUDA libraries."""
    for variable in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(backend, "_CUDA", dict.fromkeys(backend._CUDA, ("no-such-package",)))
    with_gpus(monkeypatch, "Tesla T4")
    seeing(monkeypatch)
    return monkeypatch


def test_a_run_begins_with_its_device_and_its_data(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, summary = run_here(tmp_path, emulated(tiny, "model.step_ms=0", "trainer.device=cpu"))
    assert status == 0
    size = sum(path.stat().st_size for path in tiny.rglob("*.tfrecord*"))
    assert capsys.readouterr().err.splitlines()[:2] == [
        f"device  CPU, {MACHINE}",
        f"data  tiny_pictures/1.2.0  38 + 10 examples in 4 shards, {rounded(size)}",
    ]
    assert summary["host"]["device"] == "CPU"
    assert (summary["dataset"]["shards"], summary["dataset"]["bytes"]) == (4, size)


def test_shards_that_no_split_reads_are_not_counted(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, *QUICK, "dataset.split='train[:10]'", "trainer.device=cpu")
    _, summary = run_here(tmp_path, words)
    assert (summary["dataset"]["examples"], summary["dataset"]["shards"]) == ({"train": 10}, 1)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (25_276_514_304, "25 GB"),
        (9_960_000_000, "10 GB"),
        (1_540_000_000, "1.5 GB"),
        (34_600_000, "35 MB"),
        (0, "0 bytes"),
    ],
)
def test_sizes_are_rounded(size: int, text: str) -> None:
    assert rounded(size) == text


@pytest.mark.usefixtures("listed")
def test_a_gpu_that_the_backend_does_not_see_is_told_of(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, summary = run_here(tmp_path, emulated(tiny, *QUICK))
    assert status == 0
    note = (
        "The driver lists Tesla T4, but Keras's tensorflow backend sees no GPU: pip install 'etlrun[gpu]', "
        "or set trainer.device=cpu"
    )
    assert capsys.readouterr().err.splitlines()[:2] == [f"device  CPU, {MACHINE}", f"note  {note}"]
    assert summary["remarks"] == [note]
    assert (summary["host"]["driver_gpus"], summary["host"]["accelerators"]) == (["Tesla T4"], [])


@pytest.mark.usefixtures("listed")
def test_who_asks_for_the_cpu_is_told_nothing(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, summary = run_here(tmp_path, emulated(tiny, *QUICK, "trainer.device=cpu"))
    assert "Tesla" not in capsys.readouterr().err
    assert summary["remarks"] == []


@pytest.mark.parametrize(
    ("variables", "package", "remedy"),
    [
        ({}, "no-such-package", "pip install 'etlrun[gpu]'"),
        ({}, "keras", "update the driver: the CUDA libraries are installed"),
        ({}, "no-such-package keras", "update the driver: the CUDA libraries are installed"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "no-such-package", "unset CUDA_VISIBLE_DEVICES, which hides it"),
        ({"JAX_PLATFORMS": "cpu"}, "no-such-package", "pip install 'etlrun[gpu]'"),
    ],
)
def test_a_gpu_that_is_asked_for_and_not_seen_comes_with_a_remedy(
    variables: dict[str, str], package: str, remedy: str, listed: pytest.MonkeyPatch, tiny: Path, tmp_path: Path
) -> None:
    for name, value in variables.items():
        listed.setenv(name, value)
    listed.setattr(backend, "_CUDA", {"tensorflow": tuple(package.split())})
    status, summary = run_here(tmp_path, emulated(tiny, "trainer.device=gpu"))
    assert status == 1
    assert summary["error"] == (
        "trainer.device: found no GPU that Keras's tensorflow backend can see, though the driver lists Tesla T4; "
        f"expected a GPU, since trainer.device=gpu\n    -> {remedy}, or set trainer.device=auto"
    )


def test_gpus_that_somebody_hides_are_no_surprise(
    listed: pytest.MonkeyPatch, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.setenv("CUDA_VISIBLE_DEVICES", "-1")
    _, summary = run_here(tmp_path, emulated(tiny, *QUICK))
    assert "Tesla" not in capsys.readouterr().err
    assert summary["remarks"] == []


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_jax_has_an_extra_of_its_own(tiny: Path, tmp_path: Path) -> None:
    told = "import pytest\nfrom tests.drivers import with_gpus\nwith_gpus(pytest.MonkeyPatch(), 'Tesla T4')\n"
    told += "from etlrun.run import backend\nbackend._CUDA = {}\n"
    (tmp_path / "sitecustomize.py").write_text(told)
    places = [str(tmp_path), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    words = [*small(tiny, "trainer.device=gpu"), f"hydra.run.dir={tmp_path / 'run'}"]
    variables = {"JAX_PLATFORMS": "", "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": os.pathsep.join(places)}
    status, _, err = finish(start(words, tmp_path, KERAS_BACKEND="jax", **variables))
    assert status == 1
    assert err == (
        "etlrun: failed\n  trainer.device: found no GPU that Keras's jax backend can see, though the driver lists "
        "Tesla T4; expected a GPU, since trainer.device=gpu\n"
        "    -> pip install 'etlrun[jax-cuda13]', or set trainer.device=auto\n"
    )


@pytest.mark.parametrize(
    ("names", "device"), [(["Tesla T4"], "Tesla T4 (GPU)"), (["Tesla T4"] * 2, "Tesla T4 (GPU, the first of 2)")]
)
def test_a_gpu_is_named(
    names: list[str],
    device: str,
    listed: pytest.MonkeyPatch,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeing(listed, *names)
    status, summary = run_here(tmp_path, small(tiny, "dataset.eval_split=null", "cache=none"))
    assert status == 0
    assert capsys.readouterr().err.splitlines()[0] == f"device  {device}, {MACHINE}"
    assert (summary["host"]["device"], summary["host"]["accelerators"]) == (device, names)
    assert summary["remarks"] == []
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert any(line.startswith("- au        accelerator utilization (AU) of the GPU: ") for line in lines)
    assert any(line.endswith("; GPU 0 at 50 %") for line in lines if line.startswith("- resources "))


def test_a_job_that_shares_its_gpu_says_so(listed: pytest.MonkeyPatch, tiny: Path, tmp_path: Path) -> None:
    from etlrun.record.record import Record
    from etlrun.run import run
    from tests.runs import summary_of

    seeing(listed, "Tesla T4")
    words = emulated(tiny, *QUICK)
    run.freeze(tmp_path, composed(*words), words)
    Record(tmp_path).update(jobs_on_gpu=2)
    assert run.run(tmp_path) == 0
    assert summary_of(tmp_path)["remarks"] == [
        "Up to 2 concurrent jobs share this GPU, which affects their times and its memory."
    ]


def test_on_a_cpu_nothing_is_an_accelerator(tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, "trainer.device=cpu", "measure.au_min=0.01", "dataset.eval_split=null")
    _, summary = run_here(tmp_path, words)
    text = (tmp_path / "report.md").read_text()
    assert f"- au        time in model steps: {summary['au']:.1%}, at least the required 0.01\n" in text
    assert "accelerator" not in text
    assert summary["resources"]["peak_gpu_bytes"] is None


def test_tensorflow_takes_a_gpus_memory_as_it_needs_it(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    growth: list[str] = []

    def look() -> list[str]:
        growth.append(os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
        return []

    monkeypatch.setattr(backend, "accelerators", look)
    run_here(tmp_path, emulated(tiny, *QUICK))
    assert growth[0] == "true"
