"""Folders of runs, sweeps and searches below a folder, and the one that a word names: by names and times of files."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from etlrun.record.config import CONFIG
from etlrun.system.errors import WorldError, counted, first_few
from etlrun.system.terminal import tell

Kind = Literal["run", "sweep", "search"]
"""What a folder holds; a search is one of `etlrun tune`."""
SWEEP, CONFIGS, ATTEMPTS = "sweep.json", "configs.jsonl", "attempts"
"""What a sweep was asked for, its configs, and the folder of the earlier attempts of its runs."""
SEARCH, WINDOWS = "tune.json", "windows"
"""What a search was asked for, and the folder of its runs."""
MARKS: dict[str, Kind] = {SWEEP: "sweep", SEARCH: "search", "summary.json": "run"}
"""Files by which they are known; the last is `SUMMARY`, whose module takes a tenth of a second to import."""
_PARTS = {"sweep": rf"\d+(\.\d+)?|fill-[0-9a-f]{{8}}|{ATTEMPTS}", "search": WINDOWS}
"""Names of folders with runs that are part of a sweep or of a search."""
LATEST = "latest"
OUTPUTS = Path("outputs")
"""Where runs are by default."""
_DATED = "%Y-%m-%d/%H-%M-%S-%f"
"""Names of folders by default: the start of what they hold."""
_BEGUN_BY: dict[Kind, str] = {"run": "etlrun", "sweep": "etlrun -m KEY=A,B", "search": "etlrun tune"}
_MOST = 5


def walked(folder: Path) -> Iterator[tuple[Path, Kind]]:
    """Yield folders of runs, and of sweeps with their jobs, but for hidden folders and links below `folder`."""
    folders, files = [], set()
    with os.scandir(folder) as inside:
        for found in inside:
            if found.is_dir(follow_symlinks=False):
                folders.append(found.name)
            elif found.is_file(follow_symlinks=False):
                files.add(found.name)
    kind = next((kind for mark, kind in MARKS.items() if mark in files), None)
    if kind:
        yield folder, kind
    own = _PARTS.get(kind or "", r"(?!)")
    for name in sorted(folders):
        if not name.startswith(".") and not re.fullmatch(own, name):
            yield from walked(folder / name)


def named(word: str, *kinds: Kind) -> list[Path]:
    """Return the folders in `outputs` that a word names, the newest first.

    That is the newest one for `latest`; else the one of this name, or all whose names have it as a part.
    """
    word = word.removesuffix("/").removeprefix(f"{OUTPUTS}/")
    found = [of for of in _newest(*kinds) if word == LATEST or word in _name(of)]
    same = found[:1] if word == LATEST else [of for of in found if word in (_name(of), of.name)]
    return same if len(same) == 1 else found


def found_by(word: str, where: str, *kinds: Kind) -> Path:
    """Return the folder that a word names: a path that exists or begins as one, or what `named` finds, which is told.

    Raises:
        WorldError: It names none, or several; `where` stands before the word in its place.
    """
    if word.startswith(("/", ".", "~")) or os.path.exists(word):  # noqa: PTH110 - false for a word that is too long for a name
        return Path(word)
    found = named(word, *kinds)
    if len(found) != 1:
        raise WorldError(*_unfit(word, where, found, kinds))
    tell(f"etlrun: {word} is {found[0]}")
    return found[0]


def _unfit(word: str, where: str, found: Sequence[Path], kinds: Sequence[Kind]) -> tuple[str, str, str, str]:
    what = f"the folder of {' or of '.join(f'a {kind}' for kind in kinds)}"
    number = counted(len(found), kinds[0]).replace("searchs", "searches")
    told, every = f"a part of the names of {number}", found or _newest(*kinds)
    remedy = f"the newest {'of them' if found else 'ones'}: {first_few(map(str, every), _MOST)}"
    if not every:
        told, remedy = "nothing", f"begin one with: {_BEGUN_BY[kinds[0]]}"
    elif not found:
        told = f"no {kinds[0]} of that name"
    return f"{where}{word}", told, f"{what}, `{LATEST}`, or a unique part of its name", remedy


def _newest(*kinds: Kind) -> list[Path]:
    every = walked(OUTPUTS) if OUTPUTS.is_dir() else ()
    return sorted((of for of, kind in every if kind in kinds), key=_begun_s, reverse=True)


def _name(folder: Path) -> str:
    return folder.relative_to(OUTPUTS).as_posix()


def _begun_s(folder: Path) -> float:
    """Return the start of a run or a sweep, in seconds since 1970: its name, or the time of what is written then."""
    with suppress(ValueError):
        return datetime.strptime(_name(folder), _DATED).timestamp()  # noqa: DTZ007 - of this machine, as Hydra has it
    times = [0.0]
    for name in (CONFIG, CONFIGS, SEARCH):
        with suppress(FileNotFoundError):
            times.append((folder / name).lstat().st_mtime)
    return max(times)
