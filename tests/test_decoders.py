"""Processes that decode: their pixels, their ends, and that nothing of them stays."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from etlrun.graph import decoders
from etlrun.graph.decoders import Decoders
from etlrun.review.difference import compare
from etlrun.stages.image import Decode, Turbo
from etlrun.system.errors import WorldError
from tests.configs import plan_of
from tests.encoded import LOSSLESS
from tests.golden import Says
from tests.pipelines import passes_of
from tests.runs import small
from tests.test_turbo import STRANGE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="their memory is Linux's")
ARGUMENTS: dict[str, Any] = {"center_crop": False, "size": (28, 28), "fast": False}


def processes_of(process: int | None = None) -> list[psutil.Process]:
    """Those that decode for a process, by default this one."""
    children = psutil.Process(process).children(recursive=True)
    return [child for child in children if decoders.__name__ in child.cmdline()]


Processes = Callable[[], list[psutil.Process]]


@pytest.fixture
def started() -> Processes:
    """What tells those that decode for this process since the test began."""
    before = processes_of()
    return lambda: [process for process in processes_of() if process not in before]


@pytest.fixture
def decoding() -> Iterator[Decoders]:
    """Two processes, which end with the test."""
    made = Decoders(2)
    yield made
    made.end()


def decodable() -> list[bytes]:
    """Strange images that TensorFlow decodes."""

    def is_decoded(data: bytes) -> bool:
        try:
            Turbo.op([data], **ARGUMENTS)
        except tf.errors.InvalidArgumentError:
            return False
        return True

    return [data for data in STRANGE.values() if is_decoded(data)]


@pytest.mark.parametrize("center_crop", [False, True])
def test_they_decode_to_the_pixels_of_threads(
    started: Processes,
    decoding: Decoders,
    center_crop: bool,  # noqa: FBT001
) -> None:
    images, arguments = decodable(), {**ARGUMENTS, "center_crop": center_crop}
    expected = Turbo.op(images, **arguments)
    used = set()
    for number in (2, len(images), 1, len(images)):
        np.testing.assert_array_equal(decoding(images[:number], **arguments), expected[:number])
        used |= {process.pid for process in started()}
    assert len(used) == 1


def test_what_they_gave_stays_when_they_decode_on(decoding: Decoders) -> None:
    images = decodable()
    first = decoding(images, **ARGUMENTS)
    kept = first.copy()
    decoding(images[::-1], **ARGUMENTS)
    np.testing.assert_array_equal(first, kept)


def test_what_can_not_be_decoded_is_refused_as_by_threads(decoding: Decoders) -> None:
    messages = set()
    for decode in (Turbo.op, decoding):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            decode([*decodable(), LOSSLESS], **ARGUMENTS)
        messages.add(caught.value.message)
    assert len(messages) == 1


def test_the_batch_of_a_killed_process_is_decoded_by_another(started: Processes, decoding: Decoders) -> None:
    images = decodable()
    expected = decoding(images, **ARGUMENTS)
    (first,) = started()
    first.kill()
    np.testing.assert_array_equal(decoding(images, **ARGUMENTS), expected)
    (second,) = started()
    assert second.pid != first.pid


def test_processes_that_end_at_the_same_batch_are_an_error(says: Says) -> None:
    ended = Decoders(1, "this")  # which prints a text, and ends
    with pytest.raises(WorldError) as caught:
        ended(decodable(), **ARGUMENTS)
    says(caught.value)


def test_a_pipeline_reads_the_same_with_processes(tiny: Path) -> None:
    decoders.decoders(2).end()
    before = processes_of()
    words = small(tiny, "cache=none")
    threads, processes = plan_of(*words), plan_of(*words, "transform.decode.processes=2")
    assert passes_of(processes) == passes_of(threads)
    assert len(processes_of()) > len(before)
    decoders.decoders(2).end()
    assert processes_of() == before
    (difference,) = compare(threads, processes).differences
    assert (difference.path, difference.kind) == ("transform.decode.processes", "speed")
    assert threads.fingerprint == processes.fingerprint


def test_none_is_left_when_their_process_is_killed(tmp_path: Path) -> None:
    images = tmp_path / "image.jpg"
    images.write_bytes(decodable()[0])
    program = (
        "import sys, time; from pathlib import Path; from etlrun.graph.decoders import Decoders; decode = Decoders(2);"
        f"decode([Path(sys.argv[1]).read_bytes()], **{ARGUMENTS}); print('decoded', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(images)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "decoded\n"
        found = processes_of(process.pid)
        assert len(found) == 1
        os.kill(process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(found, timeout=20)
    assert not alive


def test_a_process_that_was_left_amid_a_batch_decodes_no_other(
    decoding: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = decodable()
    expected = decoding(images[::-1], **ARGUMENTS)

    sendall = socket.socket.sendall

    def full(of: socket.socket, data: bytes) -> None:
        sendall(of, data)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "sendall", full)
        with pytest.raises(MemoryError):
            decoding(images, **ARGUMENTS)
    np.testing.assert_array_equal(decoding(images[::-1], **ARGUMENTS), expected)


@pytest.mark.parametrize("word", ["transform.resize.antialias=true", "transform.decode.processes=2"])
def test_a_plan_says_how_many_decode(word: str) -> None:
    plan = plan_of("cache=none", "transform.decode.processes=2", word)
    (decode,) = (step.stage for planned in plan.train for step in planned.steps if isinstance(step.stage, Decode))
    expected = ("turbo", 2) if "processes" in word else ("tensorflow", 0)
    assert (decode.library, decode.processes) == expected
