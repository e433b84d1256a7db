"""How the frameworks are imported, sooner and without what they print; and the signals that end a process."""

import gc
import importlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from importlib import metadata
from pathlib import Path
from types import FrameType

from etlrun.system.errors import EtlrunError

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LOGGED = re.compile(rb"([IWEF])\d{4} ")
"""Beginning of a line of absl's log."""
_USUAL = re.compile(
    rb"All log messages before absl::InitializeLog|To enable the following instructions: "
    rb"|Unable to register cu\w+ factory|computation placer already registered"
    rb"|failed call to cuInit: .*UNKNOWN ERROR \(303\)"
)
"""Warnings and errors of machines on which nothing is wrong; the last one, of a machine that has no driver of GPUs."""
_OF_EXAMPLES = re.compile(
    rb"^Improper call to JPEG library[^\n]*\n"
    rb"|^[WE]\d{4} [^\n]* (?:local_rendezvous|op_kernel|jpeg_mem|png_io|gif_io)\.cc:[^\n]*\n"
    rb"(?:Traceback (?:[^\n]*\n(?=[ \t\n]))+[^\n]*\n[^\n]*\n(?:[ \t][^\n]*\n|\n)*)?",
    re.MULTILINE,
)
"""Messages on examples that TensorFlow can't process, with the traceback that some have."""


class _State:
    """What has been asked for before TensorFlow is imported."""

    leaves_gpus = False


_state = _State()


def load_tensorflow() -> None:
    """Import TensorFlow, without what it prints about the instructions of the CPU and the drivers of GPUs."""
    with loading():  # which also looks for the driver, and takes no memory of a GPU
        importlib.import_module("tensorflow").config.list_physical_devices()
    if _state.leaves_gpus:
        leave_gpus()


def leave_gpus() -> None:
    """Have TensorFlow use no GPU, now or as soon as it is imported; it can't change that once it has computed."""
    _state.leaves_gpus = True
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.set_visible_devices([], "GPU")


def keras_backend() -> str:
    """Return the name of Keras's backend, chosen as Keras does, without importing it."""
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        return str(json.loads((folder / "keras.json").read_bytes())["backend"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return "tensorflow"


@contextmanager
def loading() -> Iterator[None]:
    """Import frameworks inside, without garbage collections and native messages."""
    os.environ.setdefault(_LEVEL, "1")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # otherwise TensorFlow allocates all memory of a GPU
    is_first = "tensorflow_datasets" not in sys.modules and gc.isenabled()
    with native_messages_kept():
        if is_first:  # collections are a tenth of the time
            gc.disable()
        try:
            yield
        finally:
            if is_first:  # later ones take 0.3 s, and find nothing among the modules of TensorFlow
                gc.freeze()
                gc.enable()


@contextmanager
def native_messages_kept(*, tells_examples: bool = False) -> Iterator[None]:
    """Buffer what native libraries write to stderr while they load, and print what says that something is wrong.

    TensorFlow reports oneDNN and missing CUDA drivers on every machine without a GPU, before it reads any log level. If
    the block fails, all is printed, but not if it is interrupted. With `tells_examples` the block reads examples, and
    tells itself which can't be processed, such as by an `EtlrunError`: what else is said of those is left out.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        has_failed = False
        try:
            yield
        except Exception as error:
            has_failed = not (tells_examples and isinstance(error, EtlrunError))
            raise
        finally:
            sys.stderr.flush()
            kept.seek(0)
            said = kept.read()
            os.dup2(saved, 2)
            os.close(saved)
            with suppress(OSError):  # a terminal may be closed
                os.write(2, said if has_failed else _wrong(said, _OF_EXAMPLES if tells_examples else None))


@contextmanager
def examples_told() -> Iterator[None]:
    """Leave out what TensorFlow says of examples in the block, which tells it itself; what Python prints isn't kept."""
    with ExitStack() as stack:
        if sys.stderr is sys.__stderr__ and sys.stderr is not None:
            stream = os.fdopen(os.dup(2), "w", 1, encoding=sys.stderr.encoding, errors=sys.stderr.errors)
            stack.enter_context(stream)
            stack.enter_context(redirect_stderr(stream))
        stack.enter_context(native_messages_kept(tells_examples=True))
        yield


def _wrong(said: bytes, told: re.Pattern[bytes] | None) -> bytes:
    """Return the lines of native libraries of the user's log level, without what is told or all machines print."""
    level = os.environ.get(_LEVEL, "")
    shown = b"IWEF"[int(level) :] if level.isdigit() else b"IWEF"
    if shown == b"IWEF":
        return said
    said = told.sub(b"", said) if told else said
    lines = [(line, _LOGGED.match(line)) for line in said.splitlines(keepends=True) if not _USUAL.search(line)]
    return b"".join(line for line, logged in lines if logged is None or logged[1] in shown)


_OTHER_NAMES = {"tensorflow": ("tensorflow-cpu",)}
"""Packages with the same content under another name."""


def version_of(package: str) -> str:
    """Return the version of a package, under any name that is known; `PackageNotFoundError` if it isn't installed."""
    for name in (package, *_OTHER_NAMES.get(package, ())):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    raise metadata.PackageNotFoundError(package)


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of an extra of etlrun, whatever etlrun was installed from."""
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(of) for of in metadata.requires("etlrun") or ()]
    except metadata.PackageNotFoundError:  # etlrun is imported from a checkout
        return f"pip install -e '.[{extra}]'"
    words = ["pip install"]
    for of in requirements:
        if of.marker is not None and of.marker.evaluate({"extra": extra}):
            extras = f"[{','.join(of.extras)}]" if of.extras else ""
            words.append(f"'{of.name}{extras}{','.join(sorted(map(str, of.specifier), reverse=True))}'")
    return " ".join(words)


_is_interrupted = False


@contextmanager
def interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` for a signal in the block, even if a library replaces it; in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _is_interrupted  # noqa: PLW0603 - signals are delivered to the one main thread
    _is_interrupted = False
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception as error:
        if _is_interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        _is_interrupted = False
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_interrupted() -> None:
    """Raise `KeyboardInterrupt` again if a library has swallowed it."""
    if _is_interrupted:
        raise KeyboardInterrupt


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _is_interrupted  # noqa: PLW0603
    _is_interrupted = True
    raise KeyboardInterrupt


_calls: list[Callable[[], None]] = []


def call_when_interrupted(call: Callable[[], None]) -> None:
    """Call a function in a thread of its own at each SIGINT or SIGTERM, before their handlers.

    Nothing is called if this isn't the main thread, or if another library, such as an event loop, is told of signals.
    """
    if _calls:
        _calls[:] = [*dict.fromkeys([*_calls, call])]
        return
    if threading.current_thread() is not threading.main_thread():
        return
    arrives, leaves = os.pipe()
    os.set_blocking(leaves, False)  # as a signal's handler demands
    before = signal.set_wakeup_fd(leaves, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(arrives)
        os.close(leaves)
        return
    _calls.append(call)

    def watch() -> None:
        while numbers := os.read(arrives, 1):
            if numbers[0] in (signal.SIGINT, signal.SIGTERM):
                for each in _calls:
                    each()

    threading.Thread(target=watch, name="signals", daemon=True).start()


def _forget() -> None:
    """Leave the signals of this process, which was forked, to itself: the pipe is that of its parent."""
    if _calls:
        _calls.clear()
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget)


_POLL_S = 0.5
"""Interval of the checks that the fork server is alive."""


def end_with_parent() -> None:
    """Wait for the end of the process that has asked for this one, or of its fork server, and end this one."""
    import multiprocessing  # which other commands don't need
    from multiprocessing import connection

    parent, server = multiprocessing.parent_process(), os.getppid()
    if parent:
        while not connection.wait([parent.sentinel], timeout=_POLL_S) and os.getppid() == server:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def how_ended(status: int) -> str:
    """Return the name of the signal that ended a process of this status, or its exit status."""
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"
