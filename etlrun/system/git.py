"""Git, as it answers about a folder."""

import os
import subprocess
from pathlib import Path
from typing import Any


def asked(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Return how git ends in `folder`, with options of `subprocess.run`; `OSError` if it can't be started."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, check=False, **options)


def git(folder: Path, *words: str, given: bytes = b"", index: Path | None = None) -> bytes | None:
    """Return the output of git in `folder`, with another `index` if given; None if it fails or is not installed."""
    env = None if index is None else {**os.environ, "GIT_INDEX_FILE": str(index)}
    try:
        answer = asked(folder, *words, input=given, env=env)
    except FileNotFoundError:
        return None
    return answer.stdout if answer.returncode == 0 else None


def names_in(folder: Path, *words: str) -> list[str]:
    """Return what a command of git lists, separated by zero bytes; nothing if it fails."""
    return [os.fsdecode(name) for name in (git(folder, *words) or b"").split(b"\0") if name]


def top_of(folder: Path) -> Path:
    """Return the top folder of the repository that `folder` is in."""
    return Path(os.fsdecode((git(folder, "rev-parse", "--show-toplevel") or b"").rstrip(b"\n")))
