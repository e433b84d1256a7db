"""Signals that end a run, however a library takes them."""

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from etlrun.run import callbacks
from etlrun.system.signals import interrupts, raise_if_interrupted
from tests.networks import trained_here

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_that_is_swallowed_is_raised_again_by_the_loop(number: signal.Signals) -> None:
    with interrupts():
        raise_if_interrupted()
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            raise_if_interrupted()
    raise_if_interrupted()


@pytest.mark.parametrize("number", SIGNALS)
def test_what_a_library_makes_of_an_interrupt_is_an_interrupt(number: signal.Signals) -> None:
    def cancelled() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:
            raise RuntimeError("cancelled") from error

    with pytest.raises(KeyboardInterrupt), interrupts():
        cancelled()


def test_other_errors_stay_and_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(RuntimeError, match="broken"), interrupts():
        raise RuntimeError("broken")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_an_epoch_that_was_printed_is_not_repeated(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its line follows its checkpoint, so that an interrupt after it costs nothing."""
    save = callbacks.save

    def interrupted(model: Any, path: Path, record: Any) -> None:
        if path.name == "epoch_0002.keras":
            signal.raise_signal(signal.SIGINT)
        save(model, path, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks, "save", interrupted)
        assert trained_here(tmp_path / "left", tiny, "trainer.epochs=3", "cache=none")[0] == 130
    printed = [line.split()[1] for line in capsys.readouterr().err.splitlines() if line.startswith("epoch ")]
    assert printed == ["1/3"]
    words = ("trainer.epochs=3", "cache=none", f"trainer.resume={tmp_path / 'left'}")
    assert trained_here(tmp_path / "resumed", tiny, *words)[0] == 0
    printed = [line.split()[1] for line in capsys.readouterr().err.splitlines() if line.startswith("epoch ")]
    assert printed == ["2/3", "3/3"]
