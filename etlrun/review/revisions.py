"""Git revisions in a review: their files, what differs from them, and their code, in a process of its own."""

import ast
import hashlib
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import tomllib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from functools import cache, cached_property
from glob import has_magic
from importlib.metadata import Distribution
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from packaging.utils import canonicalize_name

from etlrun.planning.plan import Plan, plugins_in
from etlrun.record.commit import CodeSource
from etlrun.stages.base import Stage, field_metadata
from etlrun.stages.installed import installed
from etlrun.stages.plugins import PLUGINS, Plugin
from etlrun.stages.rows import Python
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault, headline, printable
from etlrun.system.git import git, names_in, top_of
from etlrun.system.loading import how_ended
from etlrun.system.values import Block, frozen, grouped

_LINK, _SUBMODULE = "120000", "160000"
"""Git modes of entries that are not regular files."""
_ALL, _LOADING = "*", ""
"""All definitions of a module; and what happens when it is imported, which belongs to none."""


class Scratch:
    """A temporary folder, which goes with this object, and with this process, also when that is killed.

    Attributes:
        path: The folder.
        remove: Removes it at once.
        held_by: Descriptor that keeps it while a process has it open.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="etlrun-")).resolve()
        words = ["/bin/sh", "-c", 'read -r _; rm -rf -- "$0"', str(self.path)]
        remover = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        assert remover.stdin is not None  # noqa: S101 - for mypy
        self.remove, self.held_by = weakref.finalize(self, remover.communicate), remover.stdin.fileno()


@dataclass(frozen=True)
class Tree:
    """The files, links and submodules of a revision.

    Attributes:
        top: Top folder of the repository.
        revision: The revision.
    """

    top: Path
    revision: str

    @cached_property
    def entries(self) -> dict[str, str]:
        """The mode of each, by path."""
        lines = names_in(self.top, "ls-tree", "-r", "-z", "--full-tree", self.revision)
        return {name: about.split()[0] for about, _, name in (line.partition("\t") for line in lines)}

    @cached_property
    def links(self) -> list[str]:
        """The paths of its links."""
        return [name for name, mode in self.entries.items() if mode == _LINK]

    def write(self, names: Iterable[str], folder: Path) -> None:
        """Write the files and links of these names below a folder; `ConfigError` if git can't."""
        folder.mkdir(parents=True, exist_ok=True)
        words = "checkout-index", "--force", "-z", "--stdin", f"--prefix={folder}/"
        given, index = os.fsencode("".join(f"{name}\0" for name in names)), folder.with_suffix(".index")
        read = git(self.top, "read-tree", self.revision, index=index)
        if None in (read, git(self.top, *words, given=given, index=index)):
            raise ConfigError([Fault(self.revision, "files that git can't read", "a complete revision")])

    def write_configs(self, folder: str, scratch: Path) -> None:
        """Write a folder's YAML files below `scratch`, and what links lead to; `ConfigError` if one leaves the tree."""
        homes = [folder]
        for home in homes:  # which grows
            for link in [name for name in self.links if _is_in(name, home)]:
                end = Path(os.path.realpath(scratch / link))
                if not end.is_relative_to(scratch):
                    found = f"a link to {printable(str((scratch / link).readlink()))}, which leaves the repository"
                    remedy = "commit the target files, and link to these"
                    raise ConfigError([fault(f"{self.revision}:{link}", found, "a link within the revision", remedy)])
                name = end.relative_to(scratch).as_posix()
                homes += [] if name in homes else [name]
        (scratch / folder).mkdir(parents=True, exist_ok=True)
        files = [
            name
            for name, mode in self.entries.items()
            if mode not in {_LINK, _SUBMODULE} and (name in homes or name.endswith((".yaml", ".yml")))
            if any(_is_in(name, home) for home in homes)
        ]
        self.write(files, scratch)


def _is_in(name: str, folder: str) -> bool:
    return folder in {".", name} or name.startswith(f"{folder}/")


class Changes:
    """What differs from a revision in the working tree, or in a second one.

    Attributes:
        top: Top folder of the repository.
    """

    def __init__(self, *between: str) -> None:
        self.top, self._between = top_of(Path.cwd()).resolve(), between
        self._tree = Tree(self.top, between[0])

    @cached_property
    def names(self) -> dict[str, bool]:
        """What differs, files, links and submodules, with whether the first revision has it."""
        words = "--no-renames", "--no-ext-diff", "--ignore-submodules=untracked", "--name-status", "-z"
        fields = iter(names_in(self.top, "diff", *words, *self._between))
        return {name: state != "A" for state, name in zip(fields, fields, strict=True)}

    def files(self, paths: Iterable[str]) -> set[str]:
        """Return which of these differ: files, folders and patterns, below the current folder or absolute.

        They differ by themselves, or where a link above them, or one in the folder that they are or look in, leads.
        """
        found = set()
        met = {str(of) for name in self.names for of in (PurePosixPath(name), *PurePosixPath(name).parents)}
        for path in {*paths} if self.names else ():
            whole = os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - follows no link
            folder = Path(*takewhile(lambda part: not has_magic(part), Path(whole).parts))
            home = os.path.relpath(folder, self.top)
            inside = [f"{self.top}/{link}" for link in self._tree.links if _is_in(link, home)]
            ends = {os.path.relpath(end, self.top) for end in (whole, *map(os.path.realpath, [whole, *inside]))}
            above = {str(above) for end in ends for above in PurePosixPath(end).parents}  # of a submodule or a link
            words = [f":(glob){end}" for end in ends if has_magic(end)]
            is_met = not (met.isdisjoint(ends) and above.isdisjoint(self.names))
            if is_met or (words and git(self.top, "diff", "--name-only", *self._between, "--", *words)):
                found.add(path)
        return found

    def check_out(self, folder: Path) -> None:
        """Make a folder of the first revision's files, with links to what else is here; `ConfigError` if git can't.

        It is no worktree that git knows of, so that none is left behind by whatever ends this process.
        """
        own = dict.fromkeys(self._tree.links, True) | self.names  # links may lead to what differs
        homes = {PurePosixPath(), *(above for name in own for above in PurePosixPath(name).parents)}
        for home in sorted(homes):
            (folder / home).mkdir(exist_ok=True)
            if (self.top / home).is_dir() and not (self.top / home).is_symlink():
                for entry in os.scandir(self.top / home):
                    inner = home / entry.name
                    if not (inner in homes or str(inner) in own or entry.name in {".git", "__pycache__"}):
                        (folder / inner).symlink_to(entry.path)
        self._tree.write((name for name, is_there in own.items() if is_there), folder)


Sources = Mapping[str, CodeSource]


def sources_of(plan: Plan) -> dict[str, CodeSource]:
    """Return the sources of what packages add to a run, by their names as `Plan.code` has them, and of its dataset."""
    dataset = plan.spec.dataset
    added = [of for of in PLUGINS.values() if of.made is type(dataset)]
    if isinstance(dataset, Python):
        added += [Plugin.of(entry, entry.name) for entry in dataset.entries]
    found = {**plugins_in(plan.spec), **{f"the dataset {of.name}": of for of in added}}
    return {name: made for name, plugin in found.items() if (made := _source(plugin)) is not None}


def home(name: str) -> Path | None:
    """Return the folder from which a package or module is imported; None if it is not from files, or not imported."""
    module = sys.modules.get(name.partition(".")[0])
    places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    return Path(places[0]).parent.resolve() if module is not None and places[0] is not None else None


def _source(plugin: Plugin) -> CodeSource | None:
    module, _, name = plugin.where.partition(" ")[0].partition(":")
    root = home(module)
    if root is None:
        return None
    begin = [(module, name.partition(".")[0])]
    if (reader := getattr(plugin.made, "source", "")) and ":" in reader:
        begin.append((*reader.partition(":")[::2],))
    statements = [*_reached(root, begin)]
    reached = grouped((file, (line, ast.dump(statement))) for file, line, statement in statements)
    files = {file: hashlib.sha256(repr(sorted({*of})).encode()).hexdigest() for file, of in reached.items()}
    package = f"{plugin.package} {plugin.version}"
    return CodeSource(title=name, package=package, file=_file(root, module) or module, files=files)


def _reached(root: Path, todo: list[tuple[str, str]]) -> Iterator[tuple[str, int, ast.stmt]]:
    """Yield file, place and tree of each statement that definitions of `root` reach, given as a module and a name."""
    known, own = {*todo}, todo[0][0].partition(".")[0]
    while todo:
        module, name = todo.pop()
        top, file = module.partition(".")[0], _file(root, module)
        if file is None or (top != own and (top == "etlrun" or root.name in ("site-packages", "dist-packages"))):
            continue
        above = module.rpartition(".")[0]
        further = [(module, _LOADING), *([(above, _LOADING)] if above else [])]
        for place, statement in enumerate(_parsed(root / file)):
            if name == _ALL or name in _bound(statement):
                yield file, place, statement
                further += _named(statement, module, is_package=file.endswith("/__init__.py"))
        todo += (new := [of for of in dict.fromkeys(further) if of not in known])
        known |= {*new}


def _file(root: Path, module: str) -> str | None:
    inner = module.replace(".", "/")
    return next((name for name in (f"{inner}/__init__.py", f"{inner}.py") if (root / name).is_file()), None)


@cache
def _parsed(path: Path) -> list[ast.stmt]:
    """Return the statements of a module without texts that document them; none if it can't be parsed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    return [of for of in tree.body if not (isinstance(of, ast.Expr) and isinstance(of.value, ast.Constant))]


def _bound(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import() | ast.ImportFrom():
            names = {(of.asname or of.name).partition(".")[0] for of in statement.names}
            return names | {_LOADING} if _ALL in names else names
        case ast.Assign():
            targets: list[ast.expr] = statement.targets
        case ast.AnnAssign() | ast.AugAssign():
            targets = [statement.target]
        case _:
            return {_LOADING, *(of.id for of in ast.walk(statement) if isinstance(of, ast.Name))}
    return {of.id for target in targets for of in ast.walk(target) if isinstance(of, ast.Name)}


def _named(statement: ast.stmt, module: str, *, is_package: bool) -> Iterator[tuple[str, str]]:
    """Yield the definitions that a statement names, each as a module and a name in it."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield module, node.id
        elif isinstance(node, ast.Import):
            yield from ((of.name, _ALL) for of in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            for of in node.names:
                yield from ((base, of.name), (f"{base}.{of.name}", _ALL))


@frozen
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

    def is_same(self, changes: Changes) -> bool:
        """Return whether this process has imported the code of a revision, from which these changes were made.

        Any module in the folder of the package may be one that it imports.
        """
        own = [self.folder / self.name, self.folder / "**/*.py"]
        own += [] if self.project is None else [self.project / "pyproject.toml"]
        is_here = self.here is not None and self.here == changes.top / self.folder / self.here.name
        return is_here and not changes.files(str(changes.top / of) for of in own)


def packages_of(top: Path, revision: str) -> list[Package]:
    """Return the packages whose source the repository has, now or at a revision, however they are installed."""

    def tracked(*paths: str) -> list[str]:
        return names_in(top, "ls-files", "-z", f"--with-tree={revision}", "--", *paths)

    found: dict[str, Package] = {}
    dists = dict.fromkeys((entry.module.partition(".")[0], entry.dist) for entry in installed())
    projects = {
        name: Path(path).parent
        for path in (tracked("*pyproject.toml") if dists else ())
        if (name := _project(top / path).get("name"))
    }
    for name, dist in dists:
        if dist is None or name in found:
            continue
        spec, project = find_spec(name), projects.get(canonicalize_name(dist.name))
        origin = None if spec is None else next(iter(spec.submodule_search_locations or ()), spec.origin)
        here = None if origin is None else Path(origin).parent.resolve() / Path(origin).name
        folders = [] if here is None or not here.is_relative_to(top) else [here.parent.relative_to(top)]
        for folder in (*folders, *(() if project is None else (project, project / "src"))):
            if tracked(str(folder / name), str(folder / f"{name}.py")):
                found[name] = Package(name=name, folder=folder, here=here, distribution=dist, project=project)
                break
    return [*found.values()]


def _project(path: Path) -> Block:
    """Return what a `pyproject.toml` says of its project, by the name that indexes have; nothing without one."""
    try:
        said: Block = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        return {**said, "name": canonicalize_name(said["name"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


class Process:
    """Process with the files and packages of a revision, which ends with this one, or when nothing refers to this."""

    def __init__(self, changes: Changes, revision: str, packages: Sequence[Package]) -> None:
        self._scratch, self._revision, top = Scratch(), revision, changes.top
        tree = self._scratch.path / "tree"
        changes.check_out(tree)
        roots = dict.fromkeys(str(tree / of.folder) for of in packages)
        own = {of.here.parent for of in packages if of.here is not None and of.here.is_relative_to(top)}
        beside = {name.partition(".")[0] for name in sys.modules} - {"etlrun", "__main__"} if own else set()
        self._names = frozenset(of.name for of in packages) | {name for name in beside if home(name) in own}
        self._modules: dict[str, ModuleType] = {}
        self._paths = [str(_described(packages, tree)), *roots]
        here = tree / Path.cwd().resolve().relative_to(top)
        here.mkdir(parents=True, exist_ok=True)
        others = [path for path in sys.path if path and Path(path) not in own]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "etlrun.review.revisions"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=here,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*self._paths, *others])},
            start_new_session=True,  # which ends with this one, not by the keys of a terminal
            pass_fds=[self._scratch.held_by],
        )
        weakref.finalize(self, _end, self._process)

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return what a function returns there, or raise what it raises; `ConfigError` if the process ends."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None is not stdout  # noqa: S101 - for mypy
        try:
            with self._its_modules():
                stdin.write(pickle.dumps((function, given)))
                stdin.flush()
                is_error, answer = _RevisionLoader(stdout).load()
        except (EOFError, BrokenPipeError) as error:
            found = f"code that ends its process with {how_ended(self._process.wait())}"
            raise ConfigError([Fault(self._revision, found, "code that can be imported")]) from error
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


def _described(packages: Sequence[Package], tree: Path) -> Path:
    """Write what the revision says of its packages, before what is installed of them, to a folder; return it."""
    folder = tree.with_name("described")
    for package in packages:
        project = {} if package.project is None else _project(tree / package.project / "pyproject.toml")
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


class _RevisionLoader(pickle.Unpickler):
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


def main() -> None:
    """Call functions until the process that asks for them ends, by whatever."""
    with suppress(EOFError, BrokenPipeError), os.fdopen(os.dup(1), "wb") as to:
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


if __name__ == "__main__":
    main()
