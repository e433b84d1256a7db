"""Draws the picture of README.md, `docs/images/verdict.svg`: a real run, as a terminal shows it.

    python -m benchmarks.picture

Progress is left out, which a terminal repaints: standard error is no terminal here, so that its lines are plain.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "verdict.svg"
COLUMNS, ROWS = 110, 40
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Which a page would load from elsewhere."""
OVERRIDES = "model=emulated model.step_ms=6 cache=none load.shuffle_buffer=64 transform.num_parallel_calls=1"
"""An accelerator that is faster than one core decodes."""


def main() -> None:
    """Run etlrun, and write the picture of what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        progress, end = _printed(OVERRIDES.split(), folder)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ etlrun {OVERRIDES}", style="bold"))
    for text in (progress, end):
        console.print(Text.from_ansi(text.replace(f"{folder}/", "").rstrip("\n")))
    TARGET.parent.mkdir(exist_ok=True)
    picture = console.export_svg(title="etlrun", unique_id="etlrun")
    TARGET.write_text(FONTS.sub("", picture), encoding="utf-8")


def _printed(overrides: list[str], folder: str) -> tuple[str, str]:
    """Return what a run in `folder` prints on standard error, and on a terminal of this width."""
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (ROWS, COLUMNS))
    command = [sys.executable, "-m", "etlrun", *overrides]
    surroundings = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with subprocess.Popen(command, cwd=folder, env=surroundings, stdout=terminal, stderr=subprocess.PIPE) as run:
        os.close(terminal)
        assert run.stderr is not None
        progress = run.stderr.read().decode()
        end = b"".join(_read(screen)).decode().replace("\r\n", "\n")
    if run.returncode:
        raise SystemExit(progress)
    return progress, end


def _read(screen: int) -> Iterator[bytes]:
    """Yield what a terminal shows until its program has ended, which Linux reports as an error."""
    while True:
        try:
            chunk = os.read(screen, 1 << 16)
        except OSError:
            return
        if not chunk:
            return
        yield chunk


if __name__ == "__main__":
    main()
