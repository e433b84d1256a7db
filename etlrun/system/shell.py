"""Words for the shell of a person, to be pasted, and texts that Hydra's grammar takes as they are."""

import os
import re
from pathlib import PurePath
from shlex import quote

BARE = re.compile(r"(?!(?:true|false|null|nan|inf)$)[a-z_][a-z0-9_-]*", re.IGNORECASE | re.ASCII)
"""Strings that Hydra's grammar accepts without quotes; a subset."""


def pasted(word: str) -> str:
    """Return a word in quotes for the shell that `$SHELL` names: bash, zsh or another of POSIX, or fish."""
    if "'" in word and not {*word} & {*'"$`\\!'}:
        return f'"{word}"'
    is_fish = PurePath(os.environ.get("SHELL", "")).name == "fish"  # in which a backslash within quotes may escape
    return quote(word.replace("\\", "\\\\") if is_fish else word)
