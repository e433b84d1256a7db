"""Processes on a terminal of their own, and what it shows."""

import fcntl
import os
import pty
import re
import selectors
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

HIDDEN, VISIBLE = "\x1b[?25l", "\x1b[?25h"
Look = Callable[["Terminal"], bool]
"""What is done as soon as it can be: it returns whether it was."""


def once(is_shown: Callable[[str], object], act: Callable[["Terminal"], object]) -> Look:
    """Acts as soon as such a line is shown."""

    def look(terminal: "Terminal") -> bool:
        if not any(map(is_shown, terminal.lines)):
            return False
        act(terminal)
        return True

    return look


class Terminal:
    """A process whose standard streams are a terminal of so many columns; `text` is what it has written so far."""

    def __init__(self, arguments: list[str], cwd: Path, columns: int = 80, **environment: str) -> None:
        self._main, side = pty.openpty()
        self.resize(columns)
        kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "CI", "NO_COLOR", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env={**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
        )
        os.close(side)
        self.text = ""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def close(self) -> None:
        """Close it, as a window is closed, while the process goes on."""
        os.close(self._main)
        self._main = -1

    def finish(self, look: Look | None = None) -> int:
        """Read to the end, and return the exit status; `look` is called until it has returned True."""
        deadline = time.monotonic() + 240
        output = selectors.DefaultSelector()  # unlike `select`, for files of any number
        output.register(self._main, selectors.EVENT_READ)
        while self._main >= 0 and time.monotonic() < deadline:
            if output.select(0.05):
                try:
                    read = os.read(self._main, 65536)
                except OSError:  # the process has ended
                    break
                self.text += read.decode(errors="replace")
            if look is not None and look(self):
                look = None
        output.close()
        if self._main >= 0:
            os.close(self._main)
        return self.process.wait(60)

    @property
    def lines(self) -> list[str]:
        """All that has been shown in a line, also what was painted over, without repetitions."""
        shown = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", line).rstrip() for line in re.split(r"[\r\n]+", self.text)]
        return [line for place, line in enumerate(shown) if line and (not place or line != shown[place - 1])]
