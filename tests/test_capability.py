"""GPUs, drivers and cuDNN beside what a backend is built for: real cards, and real builds, none of which is here."""

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from etlrun.eject.program import ejected, versions
from etlrun.record.record import Record
from etlrun.run import backend
from etlrun.run.backend import Built, built_for, extra, fastest, of_build_info, unfit, unfit_cudnn, unfit_keras
from etlrun.system.errors import ConfigError, WorldError
from etlrun.system.machine import Gpu, Version, cores, rounded
from tests.configs import composed, plan_of, raised, spec_of
from tests.drivers import with_gpus
from tests.golden import Case, Golden, Says, cases
from tests.present import present
from tests.runs import complete_here, emulated, finish, run_here, small, start

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
    summary = complete_here(tmp_path, emulated(tiny, "model.step_ms=0", "trainer.device=cpu"))
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


def test_sizes_are_rounded() -> None:
    sizes = (25_276_514_304, 9_960_000_000, 1_540_000_000, 34_600_000, 0)
    assert [*map(rounded, sizes)] == ["25 GB", "10 GB", "1.5 GB", "35 MB", "0 bytes"]


@pytest.mark.usefixtures("listed")
def test_a_gpu_that_the_backend_does_not_see_is_told_of(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = complete_here(tmp_path, emulated(tiny, *QUICK))
    note = (
        "The driver lists Tesla T4, but Keras's tensorflow backend sees no GPU: "
        "pip install 'nvidia-cudnn-cu12>=9.24,<10' 'tensorflow[and-cuda]>=2.21,<2.22', "
        "or set trainer.device=cpu"
    )
    assert capsys.readouterr().err.splitlines()[:2] == [f"device  CPU, {MACHINE}", f"note  {note}"]
    assert summary["remarks"] == [note]
    assert (summary["host"]["driver_gpus"], summary["host"]["accelerators"]) == (["Tesla T4"], [])


@pytest.mark.parametrize("word", ["trainer.device=cpu", "CUDA_VISIBLE_DEVICES=-1"])
def test_who_asks_for_the_cpu_or_hides_a_gpu_is_told_nothing(
    word: str, listed: pytest.MonkeyPatch, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if word.startswith("CUDA"):
        listed.setenv(*word.split("="))
    _, summary = run_here(tmp_path, emulated(tiny, *QUICK, *[word] * word.startswith("trainer")))
    assert "Tesla" not in capsys.readouterr().err
    assert summary["remarks"] == []


@pytest.mark.parametrize(
    ("variable", "packages"),
    [
        ("OTHER=", ["no-such-package"]),
        ("OTHER=", ["keras"]),
        ("OTHER=", ["no-such-package", "keras"]),
        ("CUDA_VISIBLE_DEVICES=", ["no-such-package"]),
        ("JAX_PLATFORMS=cpu", ["no-such-package"]),
    ],
)
def test_a_gpu_that_is_asked_for_and_not_seen_comes_with_a_remedy(
    variable: str, packages: list[str], listed: pytest.MonkeyPatch, tiny: Path, tmp_path: Path, says: Says
) -> None:
    listed.setenv(*variable.split("="))
    listed.setattr(backend, "_CUDA", {"tensorflow": tuple(packages)})
    status, summary = run_here(tmp_path, emulated(tiny, "trainer.device=gpu"))
    assert status == 1
    says(summary["error"])


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_jax_has_an_extra_of_its_own(tiny: Path, tmp_path: Path, says: Says) -> None:
    told = "import pytest\nfrom tests.drivers import with_gpus\nwith_gpus(pytest.MonkeyPatch(), 'Tesla T4')\n"
    told += "from etlrun.run import backend\nbackend._CUDA = dict.fromkeys(('tensorflow', 'jax'), ())\n"
    (tmp_path / "sitecustomize.py").write_text(told)
    places = [str(tmp_path), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    words = [*small(tiny, "trainer.device=gpu"), f"hydra.run.dir={tmp_path / 'run'}"]
    variables = {"JAX_PLATFORMS": "", "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": os.pathsep.join(places)}
    status, _, err = finish(start(words, tmp_path, KERAS_BACKEND="jax", **variables))
    assert status == 1
    says(err)


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
    summary = complete_here(tmp_path, small(tiny, "dataset.eval_split=null", "cache=none"))
    assert capsys.readouterr().err.splitlines()[0] == f"device  {device}, {MACHINE}"
    assert (summary["host"]["device"], summary["host"]["accelerators"]) == (device, names)
    assert summary["remarks"] == []
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert any(line.startswith("- au        accelerator utilization (AU) of the GPU: ") for line in lines)


def test_a_job_that_shares_its_gpu_says_so(listed: pytest.MonkeyPatch, tiny: Path, tmp_path: Path, says: Says) -> None:
    from etlrun.run import run
    from tests.runs import summary_of

    seeing(listed, "Tesla T4")
    words = emulated(tiny, *QUICK)
    Record.create(tmp_path, composed(*words), words)
    Record(tmp_path).update(jobs_on_gpu=2)
    assert run.run(tmp_path) == 0
    says(summary_of(tmp_path)["remarks"])


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


CARDS: dict[str, Version] = {
    "Tesla K80": (3, 7),
    "Tesla V100-SXM2-16GB": (7, 0),
    "Tesla T4": (7, 5),
    "NVIDIA A100-SXM4-80GB": (8, 0),
    "NVIDIA GeForce RTX 4090": (8, 9),
    "NVIDIA H100 80GB HBM3": (9, 0),
    "NVIDIA B200": (10, 0),
    "NVIDIA GeForce RTX 5090": (12, 0),
}
BUILT = {
    "cuda_version": "12.5.1",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
    "is_cuda_build": True,
}
"""Of TensorFlow 2.21.0."""


def card(name: str) -> Gpu:
    return Gpu(uuid="GPU-0", name=name, capability=CARDS[name])


def test_a_build_tells_what_it_is_for() -> None:
    assert of_build_info("TensorFlow 2.21.0", {**BUILT}) == BUILDS["TensorFlow"]
    newer = {**BUILT, "cuda_compute_capabilities": ["sm_80", "sm_100", "compute_120a"]}
    assert of_build_info("TensorFlow 2.21.0", newer) == replace(BUILDS["TensorFlow"], least=(8, 0), most=12)
    assert of_build_info("TensorFlow 2.21.0", {"is_cuda_build": True}) is None
    found = built_for("tensorflow")  # of the installed one
    assert found is None or found.cuda >= 12


BUILDS = {
    "TensorFlow": Built(name="TensorFlow 2.21.0", cuda=12, least=(6, 0), most=9),
    "jax-cuda12": Built(name="jax-cuda12-plugin 0.12.0", cuda=12, least=(5, 2)),
    "jax-cuda13": Built(name="jax-cuda13-plugin 0.12.0", cuda=13, least=(7, 5)),
}


@pytest.mark.parametrize("case", cases("cards"))
def test_cards_that_a_build_does_not_run_on_are_refused(case: Case, golden: Golden) -> None:
    """A card that it runs on has no line."""
    faults = (unfit(card(name), case["driver"], BUILDS[case["built"]]) for name in CARDS)
    golden(case, "\n".join(str(fault) for fault in faults if fault))


def test_the_extra_is_that_of_the_newest_cuda_that_the_machine_runs() -> None:
    assert extra("jax", [card("NVIDIA B200")], "580.65.06") == "jax-cuda13"
    assert extra("jax", [card("NVIDIA B200")], "570.86.10") == "jax-cuda12"
    assert extra("jax", [card("Tesla V100-SXM2-16GB")], "580.65.06") == "jax-cuda12"
    assert extra("tensorflow", [card("Tesla T4")], "580.65.06") == "gpu"


def test_an_old_cudnn_is_refused_where_xla_compiles_convolutions(says: Says) -> None:
    trainer = present(spec_of("trainer.jit_compile=true").fit)
    says(str(unfit_cudnn(trainer, "tensorflow", "9.5.1.17")))
    assert unfit_cudnn(trainer, "tensorflow", "9.24.0.43") is unfit_cudnn(trainer, "jax", "9.5.1.17") is None
    assert unfit_cudnn(replace(trainer, jit_compile=False), "tensorflow", "9.5.1.17") is None


def test_several_devices_of_jax_need_a_version_of_keras_that_shares_a_batch_there(says: Says) -> None:
    trainer = present(plan_of("trainer.devices=2", "load.drop_remainder=true").spec.fit)
    says(str(unfit_keras(trainer, "jax", "3.14.1")))
    assert unfit_keras(trainer, "jax", "3.15.0rc1") is unfit_keras(trainer, "tensorflow", "3.12.0") is None


def test_the_precision_is_the_one_that_a_gpu_is_fast_with() -> None:
    chosen = {name: fastest([name, "Tesla T4"], [card("Tesla T4"), card(name)]) for name in CARDS}
    assert {name for name, of in chosen.items() if of == "mixed_float16"} == {"Tesla V100-SXM2-16GB", "Tesla T4"}
    assert {of for name, of in chosen.items() if CARDS[name] >= (8, 0)} == {"mixed_bfloat16"}
    assert fastest(["Tesla K80"], [card("Tesla K80")]) is fastest([], [card("Tesla T4")]) is None


def test_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    says(raised(WorldError, backend._imported, "cpu"))


def test_a_program_has_a_precision_of_its_own(says: Says) -> None:
    words = ["trainer.mixed_precision=auto"]
    says(raised(ConfigError, ejected, plan_of(*words), words, versions()))


def test_a_run_on_a_card_that_its_backend_is_not_built_for_is_refused_before_the_data(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, "NVIDIA GeForce RTX 5090", "Tesla T4")
    monkeypatch.setattr(backend, "built_for", lambda _: BUILDS["TensorFlow"])
    seeing(monkeypatch, "Tesla T4", "NVIDIA GeForce RTX 5090")
    words = emulated(tiny, *QUICK, "trainer.mixed_precision=auto")
    status, summary = run_here(tmp_path / "first", words)
    assert (status, summary["host"]["precision"]) == (0, "mixed_float16")
    assert "trainer.mixed_precision = auto: mixed_float16." in summary["remarks"]
    seeing(monkeypatch, "NVIDIA GeForce RTX 5090", "Tesla T4")
    status, summary = run_here(tmp_path / "second", words)
    assert status == 1
    assert summary["error"].endswith(
        "\n    -> set the environment variable KERAS_BACKEND=jax after pip install 'jax[cuda13]>=0.7.2,<0.13', "
        "or set trainer.device=cpu"
    )
    assert run_here(tmp_path / "third", [*words, "trainer.device=cpu"])[0] == 0
