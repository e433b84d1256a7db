"""Process of a log: a run sends it lines of JSON, and it answers on another pipe.

python -m etlrun.run.loggers FD

The messages are `{"open": …}`, `{"texts": …}`, `{"epoch": …}` and `{"end": …}`. The last answer is
`{"ended": true}`, or `{"failed": "…"}` with the reason. Without an end, of a run that was killed, the log is that
of an interrupted run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from etlrun.record.record import LOG
from etlrun.record.summary import INTERRUPTED
from etlrun.run.loggers.servers import MlflowWriter, WandbWriter
from etlrun.run.loggers.writer import Opening, Writer
from etlrun.system.errors import headline
from etlrun.system.files import write_atomically

WRITERS: dict[str, type[Writer]] = {"mlflow": MlflowWriter, "wandb": WandbWriter}
"""Loggers that have a process of their own."""


class _Log:
    """The log of a run, and `log.json` in its folder, by which a run that resumes it continues the log."""

    def __init__(self) -> None:
        self.is_over = False

    def open(self, **opening: Any) -> None:
        self.opening = Opening(**opening)
        self.writer = WRITERS[self.opening.logger]()
        self.known = {"logger": self.opening.logger, "options": self.opening.options, "epochs": self.opening.done}
        self.known["run"] = self.writer.open(self.opening)
        self._keep()

    def texts(self, **texts: str) -> None:
        self.writer.texts(texts)

    def epoch(self, number: int, at_s: float, figures: dict[str, float]) -> None:
        if number > self.opening.done:
            self.writer.epoch(number, at_s, figures)
            self.known["epochs"] = number
            self._keep()

    def end(self, status: str, texts: dict[str, str], figures: dict[str, float]) -> None:
        self.writer.end(status, texts, figures)
        self.is_over = True

    def _keep(self) -> None:
        write_atomically(Path(self.opening.folder, LOG), json.dumps(self.known) + "\n")


def main(lines: Iterable[str], answers: int) -> None:
    """Follow the messages `lines`, and write the last answer to the file descriptor `answers`."""
    log = _Log()
    try:
        for line in lines:
            for what, values in json.loads(line).items():
                getattr(log, what)(**values)
        if not log.is_over:
            log.end(INTERRUPTED, {}, {})
        answer: dict[str, Any] = {"ended": True}
    except Exception as error:  # noqa: BLE001 - the run says it
        answer = {"failed": headline(error)}
    os.write(answers, json.dumps(answer).encode() + b"\n")
    os._exit(0)  # not through hooks of a package that may wait for its server


if __name__ == "__main__":
    main(sys.stdin, int(sys.argv[1]))
