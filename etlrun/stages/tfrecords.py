"""Datasets of TFRecord files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, ClassVar

from etlrun.stages.base import DATA, TRAINING, Expected, OptionalPositive
from etlrun.stages.dataset import Declared
from etlrun.stages.made import user_path
from etlrun.stages.paths import FILES_EXPECTED, Files


@dataclass(frozen=True, kw_only=True)
class TFRecords(Declared):
    """TFRecord files of serialised examples, written by any program.

    Attributes:
        files: Pattern of the files, such as `train-*.tfrecord`; or one for each split, such as
            `{train: train-*.tfrecord, validation: val-*.tfrecord}`. A single pattern is the split `train`.
        num_classes: Number of classes of the target, whose values are 0 to below it; null if it is no class.
    """

    source: ClassVar[str] = "etlrun.sources.tfrecord:TFRecordSource"
    printed: ClassVar[str] = "etlrun.eject.printed.tfrecord"

    files: Annotated[Files, Expected(FILES_EXPECTED), DATA]
    num_classes: Annotated[OptionalPositive, DATA, TRAINING]

    @property
    def constants(self) -> dict[str, Any]:
        patterns = {name: user_path(pattern) for name, pattern in self.patterns.items()}
        return {"FILES": patterns, "NUM_CLASSES": self.num_classes}

    @property
    def title(self) -> str:
        return PurePath(next(iter(self.patterns.values()))).name

    @property
    def patterns(self) -> Mapping[str, str]:
        """Patterns of the files by split."""
        return {"train": self.files} if isinstance(self.files, str) else self.files

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        yield from super().rules()
        flow, found = self.examples, "null" if self.num_classes is None else str(self.num_classes)
        target = flow.features[flow.target]
        if len(flow.targets) > 1 or target.classes:
            if self.num_classes is not None:
                yield "num_classes", found, f"null with {self.key('target')}, which has the number of each", ""
        elif target.is_class != (self.num_classes is not None):
            needed = "the number of classes" if target.is_class else "null, since the target is no class"
            yield "num_classes", found, needed, ""
