"""The commit at which a run begins: what git says of its repository, which is never an error of the run."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from etlrun.planning.plan import Plan
from etlrun.record.commit import Commit
from etlrun.record.config import CONFIG
from etlrun.record.summary import SUMMARY
from etlrun.review.revisions import sources_of
from etlrun.system.errors import headline, printable
from etlrun.system.git import asked
from etlrun.system.loading import how_ended

_LONGEST_S = 3.0
_LARGE_BYTES, _MOST_BYTES = 1_000_000, 32_000_000
"""Size of a file, and of all of them, up to which their contents count."""
_MARKS = {"sweep.json", "tune.json", "multirun.yaml"}
"""Files of folders with runs in them."""
_OF_HOOKS = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"}
"""Variables by which git says to what it starts that another repository is meant."""


def begun(planned: Plan, config_dir: str | None) -> Future[Commit]:
    """Begin to read the commit of a run with own configs in `config_dir`, if given, while the process does other work.

    It is that of the first folder of which git knows one: this, or the current one.
    """

    def read() -> Commit:
        found = [_read(Path(folder)) for folder in dict.fromkeys([config_dir or ".", "."])]
        return next((of for of in found if of.revision), found[0]).with_values(plugins=sources_of(planned))

    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(read)
    finally:
        pool.shutdown(wait=False)


def _ask(folder: Path, *words: str) -> str:
    """Return what git says; `OSError` if it can't be started, fails or takes too long, with the reason."""
    env = {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}
    env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    try:
        answer = asked(
            folder, "-c", "core.fsmonitor=false", *words, env=env, timeout=_LONGEST_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"git took longer than {_LONGEST_S:g} s") from None
    except OSError as error:
        raise OSError(f"git can't be started: {error.strerror}") from error
    if answer.returncode:
        said = answer.stderr.decode(errors="replace").partition("\n")[0].removeprefix("fatal: ")
        said = "the repository has no commit yet" if said.startswith("ambiguous argument 'HEAD'") else said
        raise OSError(said or f"git ends with {how_ended(answer.returncode)}")
    return os.fsdecode(answer.stdout)


def _read(folder: Path) -> Commit:
    status = "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames"
    try:
        top, revision = _ask(folder, "rev-parse", "--show-toplevel", "HEAD").rstrip().rsplit("\n", 1)
    except OSError as error:
        return Commit(unknown=headline(error))
    try:
        fields = _ask(folder, *status).split("\0")
        branch = next(field for field in fields if field.startswith("# branch.head ")).removeprefix("# branch.head ")
        changed = dict(_changed(fields))
        digest = _digest(Path(top), changed) if changed else None
    except OSError as error:
        return Commit(revision=revision, unknown=headline(error))
    known = {
        "branch": None if branch == "(detached)" else printable(branch),
        "changed": len(changed),
        "changes": digest,
    }
    return Commit(revision=revision, is_clean=not changed, **known)


def _changed(fields: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths that git lists, with what it says of submodules; but files of runs that it doesn't ignore."""
    new = [field[2:] for field in fields if field.startswith("? ")]
    names = {*new}
    homes = {
        path.parent
        for path in map(PurePosixPath, new)
        if path.name in _MARKS or (path.name == SUMMARY and str(path.with_name(CONFIG)) in names)
    }
    yield from ((name, "") for name in new if homes.isdisjoint(PurePosixPath(name).parents))
    for field in fields:
        if field.startswith(("1 ", "u ")):
            parts = field.split(" ", 8 if field.startswith("1 ") else 10)
            yield parts[-1], parts[2] * parts[2].startswith("S")


def _digest(top: Path, changed: dict[str, str]) -> str:
    found, left = hashlib.sha256(), _MOST_BYTES
    for name, submodule in sorted(changed.items()):
        content, size = _content(top / name, left)
        left -= size
        within = _ask(top / name, "rev-parse", "HEAD") if submodule and (top / name).is_dir() else ""
        found.update(repr((name, submodule, within, content)).encode())
    return found.hexdigest()[:16]


def _content(path: Path, most: int) -> tuple[str, int]:
    """Return what tells the content of a path from another one, and how many bytes were read for it, of `most`."""
    try:
        of = path.lstat()
        if stat.S_ISLNK(of.st_mode):
            return str(path.readlink()), 0
        if stat.S_ISREG(of.st_mode) and of.st_size <= min(most, _LARGE_BYTES):
            return hashlib.sha256(path.read_bytes()).hexdigest(), of.st_size
    except OSError as error:
        return f"{error.strerror}", 0
    return f"{of.st_size} bytes of {of.st_mtime_ns}" if stat.S_ISREG(of.st_mode) else "no file", 0
