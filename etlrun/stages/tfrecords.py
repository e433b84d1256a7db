"""Datasets of TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any

from etlrun.stages.base import DATA, TRAINING, Expected, OptionalPositive
from etlrun.stages.dataset import Declared
from etlrun.stages.flow import Faults
from etlrun.stages.made import user_path
from etlrun.stages.paths import FILES_EXPECTED, Files, is_remote, patterns_of


@dataclass(frozen=True, kw_only=True)
class TFRecords(Declared):
    """TFRecord files of serialised examples, written by any program.

    Attributes:
        files: Pattern of the files, such as `train-*.tfrecord` or `gs://bucket/train-*.tfrecord`, or a list of
            patterns; or these for each split, such as `{train: train-*.tfrecord, validation: val-*.tfrecord}`. What is
            for no split is the split `train`.
        num_classes: Number of classes of the target, whose values are 0 to below it; null if it is no class.
    """

    source = "etlrun.sources.tfrecord:TFRecordSource"
    printed = "etlrun.eject.printed.tfrecord"

    files: Annotated[Files, Expected(FILES_EXPECTED), DATA]
    num_classes: Annotated[OptionalPositive, DATA, TRAINING]

    @property
    def constants(self) -> dict[str, Any]:
        files = {name: [user_path(pattern) for pattern in of] for name, of in self.patterns.items()}
        return {"FILES": files, "NUM_CLASSES": self.num_classes}

    @property
    def title(self) -> str:
        return PurePath(next(iter(self.patterns.values()))[0]).name

    @property
    def patterns(self) -> Mapping[str, tuple[str, ...]]:
        """Patterns of the files by split."""
        return patterns_of(self.files)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(pattern for of in self.patterns.values() for pattern in of if is_remote(pattern))

    def faults(self) -> Faults:
        yield from super().faults()
        files = [pattern for of in self.patterns.values() for pattern in of if not is_remote(pattern)]
        if self.urls and files:
            found, remedy = f"URLs, and {files[0]}", "copy those of this machine there, or those of URLs here"
            yield "files", found, "URLs alone, or files on this machine alone", remedy

    def rules(self) -> Faults:
        yield from super().rules()
        flow, found = self.examples, "null" if self.num_classes is None else str(self.num_classes)
        target = flow.features[flow.target]
        if len(flow.targets) > 1 or target.classes:
            if self.num_classes is not None:
                yield "num_classes", found, f"null with {self.key('target')}, which has the number of each", ""
        elif target.is_class != (self.num_classes is not None):
            needed = "the number of classes" if target.is_class else "null, since the target is no class"
            yield "num_classes", found, needed, ""
