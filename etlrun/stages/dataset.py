"""Which data set, and which part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import DATA, SPEED, Expected, Flag, OptionalPath, OptionalText, Stage, Text

SAMPLE_NAME = "etlrun_sample"
"""The data set that etlrun draws by itself."""


_VERSION = r"^((\d+|\*)\.(\d+|\*)\.(\d+|\*)|experimental_latest)$"
_VERSION_EXPECTED = "a version such as 4.0.1 or 4.*.*, or null"


@dataclass(frozen=True, kw_only=True)
class Dataset(Stage):
    """A TFDS data set of pictures with one label each.

    Attributes:
        name: As TFDS calls it, or `etlrun_sample`.
        version: `4.0.1`, or with wildcards `4.*.*`; null for the newest that there is.
        data_dir: Where TFDS keeps data; null for TFDS's own default.
        split: The training examples, in TFDS's slicing language.
        eval_split: The validation examples; null for no validation.
        download: Whether to download and prepare what is not there.
        image_key: The feature that holds the picture; `label_key` the one with its class.
        on_corrupt: `raise` ends the run at the first broken record, `skip` counts them and goes on.
    """

    path: ClassVar[str] = "dataset"

    @classmethod
    def key_of(cls, pipeline: str) -> str:
        """Return the dotted key of the split that the pipeline `train` or `validation` reads."""
        return cls.key("split" if pipeline == "train" else "eval_split")

    def split_of(self, pipeline: str) -> str | None:
        """Return the split that the pipeline `train` or `validation` reads; None for no validation."""
        return self.split if pipeline == "train" else self.eval_split

    name: Annotated[Text, DATA]
    version: Annotated[Annotated[str, Field(pattern=_VERSION)] | None, Expected(_VERSION_EXPECTED), DATA]
    data_dir: Annotated[OptionalPath, SPEED]
    split: Annotated[Text, DATA]
    eval_split: Annotated[OptionalText, DATA]
    download: Annotated[Flag, SPEED]
    image_key: Annotated[Text, DATA]
    label_key: Annotated[Text, DATA]
    on_corrupt: Annotated[Literal["raise", "skip"], Expected("raise or skip"), DATA]
