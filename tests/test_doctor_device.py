"""What a training needs is tried on the device, operation by operation."""

import json
from pathlib import Path

import pytest

from etlrun.run import operations
from etlrun.run.operations import Tried
from tests.forked import forked_on_jax
from tests.runs import finish
from tests.trained import said

WORKS = ["convolution of 32 x 224 x 224 x 3, float32", "product of 1024 x 1024, bfloat16"]
WORKS += ["copy of 32 x 224 x 224 x 3, uint8"]


def test_the_device_its_driver_and_what_works_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "doctor", "--device", "trainer.device=cpu").splitlines()
    assert [line[:10].rstrip() for line in lines[:5]] == ["device", "driver", "backend", "versions", "built for"]
    assert lines[0].startswith("device    CPU, ")
    assert [line.split()[-1] for line in lines[5:]] == ["result", *["works"] * 6]


@pytest.mark.slow
@pytest.mark.needs("jax")
def test_it_is_the_same_on_jax(tmp_path: Path) -> None:
    status, out, err = finish(forked_on_jax(["doctor", "--device", "--format", "json"], tmp_path))
    assert status == 0, err
    found = json.loads(out)
    assert (found["backend"], found["built_for"]) == ("Keras's jax backend", None)
    assert [(of["operation"], of["is_compiled"], of["error"]) for of in found["operations"]] == [
        (name, is_compiled, "") for name in WORKS for is_compiled in (False, True)
    ]
    assert all(of["first_s"] > 0 and of["call_ms"] > 0 for of in found["operations"])


def test_an_operation_that_fails_is_a_result_and_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = Tried(operation=WORKS[0], is_compiled=True, error="InternalError: CUDNN_STATUS_NOT_SUPPORTED")
    monkeypatch.setattr(operations, "tried", lambda _: iter([failed]))
    with pytest.raises(SystemExit) as ended:
        said(capsys, "doctor", "--device", "trainer.device=cpu")
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines()[-1].split() == [*WORKS[0].split(), "yes", *failed.error.split()]


def test_an_error_of_the_backend_is_the_result_of_an_operation() -> None:
    def broken(_: object) -> object:
        raise RuntimeError("no algorithm for this convolution\nwith its stack")

    found = operations._tried("a convolution", broken, lambda: 1.0, is_compiled=False)
    assert found == Tried(
        operation="a convolution", is_compiled=False, error="RuntimeError: no algorithm for this convolution"
    )
