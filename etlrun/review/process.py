"""A process with the files of a git revision: what plans and reads one side of a review by the code of that side."""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import tomllib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.utils import canonicalize_name

from etlrun.review.git import check_out, git
from etlrun.review.sources import home
from etlrun.stages.base import Stage, field_metadata
from etlrun.stages.installed import installed
from etlrun.system.ends import how_ended
from etlrun.system.errors import ConfigError, EtlrunError, Fault, headline


@dataclass(frozen=True, kw_only=True)
class Package:
    """Package or module of a repository that adds something to etlrun.

    Attributes:
        name: Name by which it is imported.
        folder: Folder in the repository from which it is imported at a revision.
        here: Its folder or file as it is imported in this process.
        distribution: What has installed it.
        project: Folder in the repository of the `pyproject.toml` that describes it; None without one.
    """

    name: str
    folder: Path
    here: Path | None
    distribution: Distribution
    project: Path | None

    def is_same(self, top: Path, differs: Iterable[str]) -> bool:
        """Return whether this process has imported the code of a revision, from which these files differ now.

        Any module in the folder of the package may be one that it imports.
        """
        own = [self.folder / self.name, *([] if self.project is None else [self.project / "pyproject.toml"])]
        for path in map(Path, differs):
            if any(path.is_relative_to(of) for of in own + [self.folder] * (path.suffix == ".py")):
                return False
        there = top / self.folder / self.here.name if self.here is not None else None
        return there is not None and (self.here == there or _code(self.here or there) == _code(there))


def packages_of(top: Path, revision: str) -> list[Package]:
    """Return the packages whose source the repository has, now or at a revision, however they are installed."""
    found: dict[str, Package] = {}
    entries = [entry for entry in installed() if entry.dist is not None]
    names = _tracked(top, revision, "*pyproject.toml") if entries else []
    projects = {name: Path(path).parent for path in names if (name := _project(top / path).get("name"))}
    for entry in entries:
        name, dist = entry.module.partition(".")[0], entry.dist
        spec = None if name in found or dist is None else find_spec(name)
        if name in found or dist is None:
            continue
        project = projects.get(canonicalize_name(dist.name))
        origin = None if spec is None else next(iter(spec.submodule_search_locations or ()), spec.origin)
        here = None if origin is None else Path(origin).parent.resolve() / Path(origin).name
        folders = [] if here is None or not here.is_relative_to(top) else [here.parent.relative_to(top)]
        folders += [] if project is None else [project, project / "src"]
        for folder in folders:
            if _tracked(top, revision, str(folder / name), str(folder / f"{name}.py")):
                found[name] = Package(name=name, folder=folder, here=here, distribution=dist, project=project)
                break
    return [*found.values()]


def _tracked(top: Path, revision: str, *paths: str) -> list[str]:
    listed = git(top, "ls-files", "-z", f"--with-tree={revision}", "--", *paths) or b""
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _project(path: Path) -> dict[str, Any]:
    """Return what a `pyproject.toml` says of its project, by the name that indexes have; nothing without one."""
    try:
        said: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        return {**said, "name": canonicalize_name(said["name"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _code(path: Path) -> dict[str, bytes]:
    """Return all files of a package but compiled ones, or a module, by their paths in it."""
    files = [path] if path.is_file() else [of for of in path.rglob("*") if of.is_file() and of.suffix != ".pyc"]
    return {str(of.relative_to(path)): of.read_bytes() for of in files}


class Process:
    """Process with the files of a revision, which ends with this one, or when nothing refers to this object."""

    def __init__(self, top: Path, revision: str, differs: Mapping[str, bool]) -> None:
        self._scratch = tempfile.mkdtemp(prefix="etlrun-")
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self.top, self.revision, self.tree = top, revision, Path(self._scratch).resolve() / "tree"
        check_out(top, revision, differs, self.tree)
        self._modules: dict[str, ModuleType] = {}
        self._names: frozenset[str] = frozenset()

    def start(self, packages: Sequence[Package]) -> None:
        """Start it, with these packages of the repository as the revision has them."""
        roots = list(dict.fromkeys(self.tree / of.folder for of in packages))
        own = {of.here.parent for of in packages if of.here is not None and of.here.is_relative_to(self.top)}
        beside = {name.partition(".")[0] for name in sys.modules} - {"etlrun", "__main__"} if own else set()
        self._names = frozenset(of.name for of in packages) | {name for name in beside if home(name) in own}
        self._paths = [*map(str, (self._described(packages), *roots))]
        here = self.tree / Path.cwd().resolve().relative_to(self.top.resolve())
        here.mkdir(parents=True, exist_ok=True)
        others = [path for path in sys.path if path and Path(path) not in own]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "etlrun.review.process", self._scratch],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=here,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*self._paths, *others])},
            start_new_session=True,  # which ends with this one, not by the keys of a terminal
        )
        weakref.finalize(self, _end, self._process)

    def _described(self, packages: Sequence[Package]) -> Path:
        """Write what the revision says of its packages, before what is installed of them, to a folder; return it."""
        folder = Path(self._scratch, "described")
        for package in packages:
            project = {} if package.project is None else _project(self.tree / package.project / "pyproject.toml")
            name, version = package.distribution.name, project.get("version", package.distribution.version)
            if not project or "entry-points" in project.get("dynamic", ()):
                continue
            info = folder / f"{name}-{version}.dist-info"
            info.mkdir(parents=True, exist_ok=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            lines = [
                line
                for group, entries in project.get("entry-points", {}).items()
                for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
            ]
            (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        return folder

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return what a function returns there, or raise what it raises.

        Raises:
            ConfigError: The process has come to an end.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None is not stdout  # noqa: S101 - for mypy
        try:
            with self._its_modules():
                stdin.write(pickle.dumps((function, given)))
                stdin.flush()
                is_error, answer = _Loader(stdout).load()
        except (EOFError, BrokenPipeError) as error:
            found = f"code that ends its process with {how_ended(self._process.wait())}"
            raise ConfigError(
                [Fault(where=self.revision, found=found, expected="code that can be imported")]
            ) from error
        if is_error:
            raise answer
        return answer

    @contextmanager
    def _its_modules(self) -> Iterator[None]:
        """Let names of the repository's modules be those of the revision, whose plans have values of their classes."""
        before, kept = sys.path[:], self._taken()
        sys.modules.update(self._modules)
        sys.path[:0] = self._paths
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path[:] = before
            self._modules = self._taken()
            sys.modules.update(kept)

    def _taken(self) -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in self._names}


class _Loader(pickle.Unpickler):
    """Loads values whose classes are those of a revision, and reads their annotations while their modules are there."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        found = super().find_class(module_name, global_name)
        if isinstance(found, type) and issubclass(found, Stage) and is_dataclass(found):
            field_metadata(found)
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):  # of what was not written yet
            pipe.close()


def main(scratch: str) -> None:
    """Call functions until the process that asks for them ends, by whatever, and remove the files of the revision."""
    try:
        with os.fdopen(os.dup(1), "wb") as to:
            os.dup2(2, 1)  # for what code prints
            while True:
                function, given = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that has started this one
                try:
                    answer = pickle.dumps((False, function(*given)))
                except EtlrunError as error:
                    answer = pickle.dumps((True, error))
                except Exception as error:  # noqa: BLE001 - code of the revision raises anything
                    answer = pickle.dumps((True, RuntimeError(f"{type(error).__name__}: {headline(error)}")))
                to.write(answer)
                to.flush()
    except (EOFError, BrokenPipeError):
        pass
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
