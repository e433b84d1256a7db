"""Words for the shell of a person, to be pasted."""

import os
from pathlib import PurePath
from shlex import quote


def pasted(word: str) -> str:
    """Return a word in quotes for the shell that `$SHELL` names: bash, zsh or another of POSIX, or fish."""
    if "'" in word and not {*word} & {*'"$`\\!'}:
        return f'"{word}"'
    is_fish = PurePath(os.environ.get("SHELL", "")).name == "fish"  # in which a backslash within quotes may escape
    return quote(word.replace("\\", "\\\\") if is_fish else word)
