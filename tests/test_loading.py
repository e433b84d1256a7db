import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from etlrun.system.loading import loading, native_messages_kept
from tests.runs import emulated, finish, start

USUAL = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1.000001    1 port.cc:153] oneDNN custom operations are on.",
    "I0000 00:00:1.000001    1 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
    "I0000 00:00:1.000001    1 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use available CPU",
    "To enable the following instructions: AVX2 FMA, rebuild TensorFlow with the appropriate compiler flags.",
    "E0000 00:00:1.000001    1 cuda_dnn.cc:8579] Unable to register cuDNN factory: it has been registered already",
    "W0000 00:00:1.000001    1 computation_placer.cc:177] computation placer already registered.",
    "E0000 00:00:1.000001    1 cuda_platform.cc:52] failed call to cuInit: INTERNAL: UNKNOWN ERROR (303)",
)
WARNING = "W0000 00:00:1.000001    1 gpu_device.cc:2348] Cannot dlopen some GPU libraries."
WRONG = (
    "E0000 00:00:1.000001    1 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: out of memory (2)",
    "module.py:1: UserWarning: a library is old",
)


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What is left of all these lines."""
    with native_messages_kept():
        os.write(2, "".join(f"{line}\n" for line in (*USUAL, WARNING, *WRONG)).encode())
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(("level", "left"), [("1", (WARNING, *WRONG)), ("2", WRONG), ("0", (*USUAL, WARNING, *WRONG))])
def test_native_messages_of_machines_on_which_nothing_is_wrong_are_left_out(
    level: str, left: tuple[str, ...], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    assert said(capfd) == [*left]


def test_all_native_messages_of_an_import_that_fails_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with suppress(ImportError), native_messages_kept():
        os.write(2, f"{USUAL[1]}\n".encode())
        raise ImportError
    assert capfd.readouterr().err == f"{USUAL[1]}\n"


def test_an_interrupted_import_prints_what_one_that_succeeds_does(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    with suppress(KeyboardInterrupt), native_messages_kept():
        os.write(2, f"{USUAL[1]}\n{WRONG[0]}\n".encode())
        raise KeyboardInterrupt
    assert capfd.readouterr().err == f"{WRONG[0]}\n"


@pytest.mark.slow
def test_a_run_prints_its_own_lines_alone_on_standard_error(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the log level of a person, who has set none; in the first run, which prepares the sample, too."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    words = emulated(sample, "dataset=sample", "trainer.epochs=2", f"dataset.data_dir={tmp_path / 'data'}")
    words = [word for word in words if not word.startswith(("dataset=tfds", "dataset.name", "dataset.download"))]
    status, _, err = finish(start(words, tmp_path))
    assert status == 0, err
    assert [line.split()[0:2] for line in err.splitlines()] == [
        ["device", "CPU,"],
        ["preparing", "etlrun_sample/1.0.0"],
        ["data", "etlrun_sample/1.0.0"],
        ["epoch", "1/2"],
        ["epoch", "2/2"],
    ]


@pytest.mark.slow
def test_what_goes_wrong_in_tensorflow_later_is_printed() -> None:
    program = (
        "from etlrun.system.loading import load_tensorflow\n"
        "load_tensorflow()\n"
        "import tensorflow as tf\n"
        "try:\n"
        "    tf.zeros((1 << 20, 1 << 20), tf.float64)\n"
        "except tf.errors.ResourceExhaustedError as error:\n"
        "    print('exhausted')\n"
    )
    variables = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables, check=True)
    assert done.stdout == "exhausted\n"
    assert "OOM when allocating tensor with shape[1048576,1048576]" in done.stderr.splitlines()[-1]
    assert not [line for line in done.stderr.splitlines() if line.startswith(("I0000", "E0000"))]


def test_collections_go_on_after_an_import_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow_datasets", raising=False)
    with suppress(ImportError), loading():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
