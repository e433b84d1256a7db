"""What installed packages add by their entry points: steps, datasets, models, losses, metrics and callbacks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

from etlrun.stages.code import source
from etlrun.system.errors import DOCS

Functions = tuple[Callable[..., Any], ...]

STEPS, MODELS, LOSSES, METRICS, CALLBACKS, ROWS = (
    f"etlrun.{name}" for name in ("stages", "models", "losses", "metrics", "callbacks", "datasets")
)
"""Groups of entry points."""
OF_YOUR_OWN = "{} of your own is a {} in a package of yours, installed with pip: " + f"{DOCS}/extending.md"
"""The remedy for what no installed package adds."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What an installed package adds under a name.

    Attributes:
        group: Group of its entry point.
        name: Name in configs.
        where: `MODULE:NAME` of the entry point.
        package: Name of the package, and `version` its version.
        made: Its class or its function; None if that can't be used.
        functions: Its functions, each behind those that it calls: their source is all that they do.
    """

    group: str
    name: str
    where: str
    package: str
    version: str
    made: Any = None
    functions: Functions = ()

    @classmethod
    def of(cls, entry: EntryPoint, name: str, made: Any = None, functions: Iterable[Any] = ()) -> Plugin:
        """Return what an entry point adds under that name."""
        package, version = (entry.dist.name, entry.dist.version) if entry.dist is not None else (entry.module, "")
        named = {"group": entry.group, "name": name, "where": entry.value, "package": package, "version": version}
        return cls(**named, made=made, functions=(*functions,))

    @property
    def path(self) -> str:
        """Module and name of its function, which is the last one."""
        return f"{self.made.__module__}.{self.made.__name__}"

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of its function that a config may set, with their defaults."""
        return dict(self.made.__kwdefaults__ or {})

    @property
    def is_of_examples(self) -> bool:
        """Whether its function takes targets and predictions, and does not make an object of Keras."""
        return bool(self.made.__code__.co_argcount)

    @property
    def falls(self) -> bool:
        """Whether smaller values of a metric are better, as `direction = "down"` of its function says."""
        return getattr(self.made, "direction", "up") == "down"

    @property
    def code(self) -> str:
        """Package and version, and what tells its code from any other."""
        return f"{self.package} {self.version}, code {digest_of(self.functions)}"


PLUGINS: dict[tuple[str, str], Plugin] = {}
"""All that can be used, by group and name."""


def named(group: str, name: str) -> Plugin | None:
    """Return what a package adds to a group under that name; None if none does."""
    return PLUGINS.get((group, name))


def names(group: str) -> list[str]:
    """Return the names that packages add to a group."""
    return [name for of, name in PLUGINS if of == group]


def functions_at(path: str) -> Functions:
    """Return the functions of what is at a path, `MODULE.NAME`, each behind those that it calls; empty for others."""
    return next((of.functions for of in PLUGINS.values() if of.functions and of.path == path), ())


def digest_of(functions: Iterable[Callable[..., Any]]) -> str:
    """Return the first 16 hex digits of a SHA-256 over functions, which refer to nothing but each other."""
    texts = [[source(made), repr(made.__defaults__), repr(made.__kwdefaults__)] for made in functions]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]
