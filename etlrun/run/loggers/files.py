"""Logs in the run's folder: TensorBoard's event files, and tables as CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from etlrun.run.loggers.writer import Opening
from etlrun.system.files import write_atomically


class TensorBoardWriter:
    """Event files without TensorFlow: scalars by epoch, and texts."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._last = 0

    def open(self, opening: Opening) -> str:
        """Begin the event file; that of a resumed run has all epochs again."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = Path(opening.folder, "tensorboard")
        folder.mkdir(exist_ok=True)
        self._file = (folder / f"events.out.tfevents.{round(opening.began_s)}.etlrun").open("wb")
        self._records = RecordWriter(self._file)
        self._write(opening.began_s, file_version="brain.Event:2")
        config = yaml.safe_dump(dict(opening.parameters), sort_keys=False, allow_unicode=True)
        self._texts({**opening.texts, "config": f"```yaml\n{config}```"}, opening.began_s)
        return ""

    def texts(self, texts: Mapping[str, str]) -> None:
        """Write texts, which TensorBoard shows as Markdown."""
        self._texts(texts, time.time())

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Write the figures as scalars of the step `number`."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._last = number
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        self._write(at_s, step=number, summary=Summary(value=values))

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Write the figures of the whole run as scalars of the last step."""
        now = time.time()
        self._texts({"status": status, **texts}, now)
        self.epoch(self._last, now, figures)
        if self._file is not None:
            self._file.close()

    def _texts(self, texts: Mapping[str, str], at_s: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.summary_v2 import text_pb

        for tag, text in texts.items():
            self._write(at_s, step=0, summary=Summary.FromString(text_pb(tag, text).SerializeToString()))

    def _write(self, at_s: float, **values: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._records.write(Event(wall_time=at_s, **values).SerializeToString())
        if self._file is not None:
            self._file.flush()


class CsvWriter:
    """`csv/epochs.csv` and `csv/run.csv`; each is replaced as a whole, so that a reader never sees a part of a row."""

    def __init__(self) -> None:
        self._epochs: list[dict[str, float]] = []
        self._run: dict[str, Any] = {}

    def open(self, opening: Opening) -> str:
        """Write what is known of the run; the tables of a resumed run have all epochs again."""
        self._folder = Path(opening.folder, "csv")
        self._folder.mkdir(exist_ok=True)
        self.texts({**opening.texts, **{f"config/{key}": value for key, value in opening.parameters.items()}})
        return ""

    def texts(self, texts: Mapping[str, Any]) -> None:
        """Write a row for each text."""
        self._run |= texts
        self._table("run.csv", ["name", "value"], self._run.items())

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Write a row; a figure that an epoch doesn't have is empty."""
        self._epochs.append({"epoch": number, "ended_s": at_s, **figures})
        names = list(dict.fromkeys(name for row in self._epochs for name in row))
        self._table("epochs.csv", names, ([row.get(name, "") for name in names] for row in self._epochs))

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Write what is known at the end."""
        self.texts({"status": status, **texts, **figures})

    def _table(self, name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
        write_atomically(self._folder / name, text.getvalue())
