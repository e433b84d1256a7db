"""GPUs, drivers and cuDNN beside what a backend is built for: real cards, and real builds, none of which is here."""

from dataclasses import replace
from pathlib import Path

import pytest

from etlrun.eject.program import ejected, versions
from etlrun.run import backend
from etlrun.run.backend import Built, built_for, extra, fastest, of_build_info, unfit, unfit_cudnn, unfit_keras
from etlrun.system.errors import ConfigError
from etlrun.system.machine import Gpu, Version
from tests.configs import plan_of, spec_of
from tests.drivers import with_gpus
from tests.runs import emulated, run_here
from tests.test_device import QUICK, seeing

CARDS: dict[str, Version] = {
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
TENSORFLOW = Built(name="TensorFlow 2.21.0", cuda=12, least=(6, 0), most=9)
JAX_12 = Built(name="jax-cuda12-plugin 0.12.0", cuda=12, least=(5, 2))
JAX_13 = Built(name="jax-cuda13-plugin 0.12.0", cuda=13, least=(7, 5))


def card(name: str, capability: Version = (0, 0)) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", name=name, capability=CARDS.get(name, capability))


def test_a_build_tells_what_it_is_for() -> None:
    assert of_build_info("TensorFlow 2.21.0", {**BUILT}) == TENSORFLOW
    newer = {**BUILT, "cuda_compute_capabilities": ["sm_80", "sm_100", "compute_120a"]}
    assert of_build_info("TensorFlow 2.21.0", newer) == replace(TENSORFLOW, least=(8, 0), most=12)
    assert of_build_info("TensorFlow 2.21.0", {"is_cuda_build": True}) is None
    assert built_for("torch") is None
    found = built_for("tensorflow")  # of the installed one
    assert found is None or found.cuda >= 12


@pytest.mark.parametrize(
    ("built", "driver", "refused"),
    [
        (TENSORFLOW, "535.183.01", {"NVIDIA B200", "NVIDIA GeForce RTX 5090"}),
        (JAX_12, "535.183.01", set()),
        (JAX_13, "580.65.06", {"Tesla V100-SXM2-16GB"}),
        (JAX_13, "575.57.08", {*CARDS}),
        (TENSORFLOW, "470.57.02", {*CARDS}),
        (JAX_12, "", set()),
    ],
    ids=["TensorFlow", "jax-cuda12", "jax-cuda13", "jax-cuda13, older", "TensorFlow, older", "no driver"],
)
def test_cards_that_a_build_does_not_run_on_are_refused(built: Built, driver: str, refused: set[str]) -> None:
    assert {name for name in CARDS if unfit(card(name), driver, built)} == refused


@pytest.mark.parametrize(
    ("gpu", "built", "driver", "message"),
    [
        (
            card("NVIDIA GeForce RTX 5090"),
            TENSORFLOW,
            "580.65.06",
            (
                "trainer.device: found NVIDIA GeForce RTX 5090 of compute capability 12.0; expected at most 9.x for "
                "TensorFlow 2.21.0, whose kernels fail on newer ones with errors of PTX\n"
                "    -> set the environment variable KERAS_BACKEND=jax after pip install 'etlrun[jax-cuda13]'"
            ),
        ),
        (
            card("Tesla V100-SXM2-16GB"),
            JAX_13,
            "580.65.06",
            (
                "trainer.device: found Tesla V100-SXM2-16GB of compute capability 7.0; expected at least 7.5 for "
                "jax-cuda13-plugin 0.12.0\n"
                "    -> set the environment variable KERAS_BACKEND=jax after pip install 'etlrun[jax-cuda12]'"
            ),
        ),
        (
            card("Tesla K80", (3, 7)),
            TENSORFLOW,
            "580.65.06",
            (
                "trainer.device: found Tesla K80 of compute capability 3.7; expected at least 6.0 for TensorFlow "
                "2.21.0\n    -> use another GPU"
            ),
        ),
        (
            card("Tesla T4"),
            JAX_13,
            "535.183.01",
            (
                "trainer.device: found Tesla T4 with version 535.183.01 of NVIDIA's driver; expected version 580 or "
                "newer for jax-cuda13-plugin 0.12.0, which is built for CUDA 13\n"
                "    -> update the driver, or set the environment variable KERAS_BACKEND=jax after "
                "pip install 'etlrun[jax-cuda12]'"
            ),
        ),
        (
            card("Tesla T4"),
            TENSORFLOW,
            "470.57.02",
            (
                "trainer.device: found Tesla T4 with version 470.57.02 of NVIDIA's driver; expected version 525 or "
                "newer for TensorFlow 2.21.0, which is built for CUDA 12\n    -> update the driver"
            ),
        ),
    ],
    ids=lambda of: of.name if isinstance(of, Gpu | Built) else "",
)
def test_a_refusal_says_what_to_do(gpu: Gpu, built: Built, driver: str, message: str) -> None:
    assert str(unfit(gpu, driver, built)) == message


def test_the_extra_is_that_of_the_newest_cuda_that_the_machine_runs() -> None:
    assert extra("jax", [card("NVIDIA B200")], "580.65.06") == "jax-cuda13"
    assert extra("jax", [card("NVIDIA B200")], "570.86.10") == "jax-cuda12"
    assert extra("jax", [card("Tesla V100-SXM2-16GB")], "580.65.06") == "jax-cuda12"
    assert extra("tensorflow", [card("Tesla T4")], "580.65.06") == "gpu"
    assert extra("torch", [card("Tesla T4")], "580.65.06") is None


def test_an_old_cudnn_is_refused_where_xla_compiles_convolutions() -> None:
    trainer = spec_of("trainer.jit_compile=true").fit
    assert trainer is not None
    assert str(unfit_cudnn(trainer, "tensorflow", "9.5.1.17")) == (
        "trainer.jit_compile: found true with cuDNN 9.5.1.17; expected cuDNN 9.24 or newer, since convolutions that "
        "XLA compiles fail with older ones\n"
        "    -> pip install 'nvidia-cudnn-cu12>=9.24', or set trainer.jit_compile=false"
    )
    assert unfit_cudnn(trainer, "tensorflow", "9.24.0.43") is unfit_cudnn(trainer, "jax", "9.5.1.17") is None
    assert unfit_cudnn(replace(trainer, jit_compile=False), "tensorflow", "9.5.1.17") is None


def test_several_devices_of_jax_need_a_version_of_keras_that_shares_a_batch_there() -> None:
    trainer = plan_of("trainer.devices=2", "load.drop_remainder=true").spec.fit
    assert trainer is not None
    assert str(unfit_keras(trainer, "jax", "3.14.1")) == (
        "trainer.devices: found 2 with Keras 3.14.1; expected Keras 3.15 or newer, since older ones can't share a "
        "batch on JAX\n"
        "    -> pip install 'keras>=3.15', or set trainer.devices=1"
    )
    assert unfit_keras(trainer, "jax", "3.15.0rc1") is unfit_keras(trainer, "tensorflow", "3.12.0") is None


def test_the_precision_is_the_one_that_a_gpu_is_fast_with() -> None:
    chosen = {name: fastest([name, "Tesla T4"], [card("Tesla T4"), card(name)]) for name in CARDS}
    assert {name for name, of in chosen.items() if of == "mixed_float16"} == {"Tesla V100-SXM2-16GB", "Tesla T4"}
    assert {of for name, of in chosen.items() if CARDS[name] >= (8, 0)} == {"mixed_bfloat16"}
    old = card("Tesla P100-PCIE-16GB", (6, 0))
    assert fastest([old.name], [old]) is fastest([], [card("Tesla T4")]) is None


def test_a_program_has_a_precision_of_its_own() -> None:
    words = ["trainer.mixed_precision=auto"]
    with pytest.raises(ConfigError) as caught:
        ejected(plan_of(*words), words, versions())
    assert str(caught.value) == (
        "trainer.mixed_precision: found auto; expected mixed_bfloat16, mixed_float16 or null in a program\n"
        "    -> add trainer.mixed_precision=null, or the one that its runs note"
    )


def test_a_run_on_a_card_that_its_backend_is_not_built_for_is_refused_before_the_data(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, "NVIDIA GeForce RTX 5090", "Tesla T4")
    monkeypatch.setattr(backend, "built_for", lambda _: TENSORFLOW)
    seeing(monkeypatch, "Tesla T4", "NVIDIA GeForce RTX 5090")
    words = emulated(tiny, *QUICK, "trainer.mixed_precision=auto")
    status, summary = run_here(tmp_path / "first", words)
    assert (status, summary["host"]["precision"]) == (0, "mixed_float16")
    assert "trainer.mixed_precision = auto: mixed_float16." in summary["remarks"]
    seeing(monkeypatch, "NVIDIA GeForce RTX 5090", "Tesla T4")
    status, summary = run_here(tmp_path / "second", words)
    assert status == 1
    assert summary["error"].endswith(
        "\n    -> set the environment variable KERAS_BACKEND=jax after pip install 'etlrun[jax-cuda13]', "
        "or set trainer.device=cpu"
    )
    assert run_here(tmp_path / "third", [*words, "trainer.device=cpu"])[0] == 0
