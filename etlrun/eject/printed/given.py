"""What the printed functions refer to, and is that of a program or of its dataset: names alone.

- `records_of(split)`, `classes()`: the records of a split that is listed, and the names of the classes.
- `NAME`, `DATA_DIR`, `DOWNLOAD`: name and version of a dataset of TFDS, its data folder, and whether a missing one is
  downloaded and prepared.
- `DIR`: folder of the images, or of the texts. `ERRORS`: `strict` or `replace`, for texts that are not in UTF-8.
- `FILES`: pattern of the files of each split, or several. `FOLDERS`: columns that the names of folders have, no file.
- `FUNCTION`: `MODULE:NAME` of the function that returns or yields rows.
- `TYPES`: types of the columns of rows: dtypes, as `int64 list` of lists, or `timestamp[us]`.
- `FEATURES`: names of the columns of rows that are the inputs of a pipeline, and of its target.
- `SPLIT_BY`, `SPLIT_COLUMN`: how the values of a column of rows decide what a slice is, and the name of the column.
- `SPLIT_VALUES`: values of that column in each split.
- `ORDER`: `random` or `file`, the order in which rows are read.
- `BLANK`: texts of a csv or tsv that stand for no value. `STRIP`: whether blanks around texts are removed.
- `CSV`: options of `pyarrow.csv.ParseOptions` for csv and tsv.
- `CLASSES`: values of a column that is a class, in the order of their indices.
- `NUM_CLASSES`: number of classes of files that don't contain it.
- `TARGET`: key of the class in a serialised example.
- `STORED`: key, shape, and dtypes in a serialised example and in a pipeline, by feature.
- `SKIPS`: whether records that can't be used are skipped.
- `BOUNDARIES`, `BATCH_SIZES`: longest sequence of each bucket, and examples per batch of each bucket.
"""

from __future__ import annotations

from typing import Any

NOWHERE: Any = object()
"""What stands for all of them."""
NAME = DATA_DIR = DOWNLOAD = DIR = ERRORS = FILES = FOLDERS = FUNCTION = TYPES = FEATURES = NOWHERE
SPLIT_BY = SPLIT_COLUMN = SPLIT_VALUES = ORDER = BLANK = STRIP = CSV = CLASSES = NUM_CLASSES = NOWHERE
TARGET = STORED = TRAIN_SPLIT = SKIPS = BOUNDARIES = BATCH_SIZES = records_of = classes = NOWHERE
