"""Source code on which a run rests in packages, beyond that of which fingerprints are made: all that it can reach."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from etlrun.planning.code import plugins_in
from etlrun.planning.plan import Plan
from etlrun.stages.plugins import PLUGINS, Plugin
from etlrun.stages.rows import Python

_ALL, _LOADING = "*", ""
"""All definitions of a module; and what happens when it is imported, which belongs to none."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Source of what a package adds to a run.

    Attributes:
        title: Name of its class or function.
        package: Name and version of the package.
        file: File that defines it, below the folder from which the package is imported; so are the others.
        files: Digest of all definitions that it can reach, by file.
        texts: Texts in these definitions, which may name files.
    """

    title: str
    package: str
    file: str
    files: Mapping[str, str]
    texts: frozenset[str]

    @property
    def digest(self) -> str:
        """First 16 hex digits of a SHA-256 over all files."""
        return hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()[:16]

    def is_named(self, text: str) -> bool:
        """Return whether a text has the name of the package, as requirements spell it."""
        name = "[-_.]+".join(map(re.escape, re.split("[-_.]+", self.package.rpartition(" ")[0])))
        return re.search(rf"(?<![\w.-]){name}(?![\w.-])", text, re.IGNORECASE) is not None

    def may_read(self, path: str) -> bool:
        """Return whether its texts have the name of a file that is no code, of a folder above it, or their pattern."""
        ends = [text for text in self.texts if text.startswith(".") or "*" in text]
        return not path.endswith(".py") and (
            any(f"/{text.strip('./')}/" in f"/{path}/" for text in self.texts if text.strip("./"))
            or any(fnmatch(path, f"*{text}") for text in ends if any(map(str.isalnum, text)))
        )


Sources = Mapping[str, Source]


def sources_of(plan: Plan) -> dict[str, Source]:
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


def _source(plugin: Plugin) -> Source | None:
    module, _, name = plugin.where.partition(" ")[0].partition(":")
    root = home(module)
    if root is None:
        return None
    begin = [(module, name.partition(".")[0])]
    if (reader := getattr(plugin.made, "source", "")) and ":" in reader:
        begin.append((*reader.partition(":")[::2],))
    reached: dict[str, dict[int, str]] = {}
    texts = set[str]()
    for file, line, statement in _reached(root, begin):
        reached.setdefault(file, {})[line] = ast.dump(statement)
        values = [of.value for of in ast.walk(statement) if isinstance(of, ast.Constant)]
        texts |= {value for value in values if isinstance(value, str)}
    files = {file: hashlib.sha256(repr(sorted(of.items())).encode()).hexdigest() for file, of in reached.items()}
    package = f"{plugin.package} {plugin.version}"
    return Source(title=name, package=package, file=_file(root, module) or module, files=files, texts=frozenset(texts))


def _reached(root: Path, todo: list[tuple[str, str]]) -> Iterator[tuple[str, int, ast.stmt]]:
    """Yield file, place and tree of each statement that definitions reach, each given as a module and a name in it.

    Followed are the modules in the folder `root`; among installed packages, those of the same one.
    """
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
    """Return the names that a statement of a module defines or changes."""
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
