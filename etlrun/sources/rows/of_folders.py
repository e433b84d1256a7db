"""Columns in the names of folders, as Hive and Spark write them: `kind=a/part-0.parquet`."""

from __future__ import annotations

import urllib.parse


def values_of_folders(path: str) -> dict[str, str | None]:
    """Return the values in the names of the folders of a path or URL, by column; None for one that is missing."""
    named = (part.partition("=") for part in path.replace("\\", "/").split("/")[:-1])
    values = {urllib.parse.unquote(name): value for name, is_one, value in named if name and is_one}
    missing = "__HIVE_DEFAULT_PARTITION__"
    return {name: None if value == missing else urllib.parse.unquote(value) for name, value in values.items()}
