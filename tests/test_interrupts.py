"""Signals that end a run, however a library takes them."""

import signal
from contextlib import suppress

import pytest

from etlrun.run.interrupts import interrupts, raise_if_interrupted

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
