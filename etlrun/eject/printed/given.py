"""What the printed functions refer to, and is that of a program or of its dataset: types and names alone."""

from __future__ import annotations

from typing import Any

NAME, DATA_DIR, DOWNLOAD = "", "", False
"""Name and version of a dataset of TFDS, its data folder, and whether a missing dataset is downloaded and prepared."""
DIR = ""  # folder of the images, or of the texts
ERRORS = ""  # `strict` or `replace`, for texts that are not in UTF-8
FILES: Any = {}  # pattern of the files of each split, or several
FUNCTION = ""  # `MODULE:NAME` of the function that returns or yields rows
TYPES: dict[str, str] = {}  # types of the columns of rows: dtypes, as `int64 list` of lists, or `timestamp`
FEATURES: list[str] = []  # names of the columns of rows that are the inputs of a pipeline, and of its target
SPLIT_BY, SPLIT_COLUMN = "", ""  # how the values of a column of rows decide what a slice is, and the name of the column
SPLIT_VALUES: dict[str, Any] = {}  # values of that column in each split
ORDER = ""  # `random` or `file`, the order in which rows are read
FOLDERS: tuple[str, ...] = ()  # columns that the names of folders have, and no file
BLANK: list[str] = []  # texts of a csv or tsv that stand for no value
STRIP = False  # whether blanks around texts are removed
CSV: dict[str, Any] = {}  # options of `pyarrow.csv.ParseOptions` for csv and tsv
CLASSES: list[str] = []  # values of a column that is a class, in the order of their indices
NUM_CLASSES = 0  # number of classes of files that don't contain it
TARGET = ""  # key of the class in a serialised example
TRAIN_SPLIT = ""
BOUNDARIES: list[int] = []  # longest sequence of each bucket
BATCH_SIZES: list[int] = []  # examples per batch of each bucket


def records_of(split: str) -> list[bytes]:
    """Return the records of `split`: the function of a dataset that lists them."""
    raise NotImplementedError


def classes() -> list[str]:
    """Return the names of the classes: the function of the dataset."""
    raise NotImplementedError
