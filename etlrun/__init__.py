"""A declarative training runner: YAML configs become tf.data graphs and trained Keras models.

`plan` validates a config and shows what it does, `Planned.fit` runs it, `diff` compares two, and `load` reads what runs
and sweeps have left. Importing this package imports nothing else: each name is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from etlrun.system import VERSION

__version__ = VERSION
__all__ = ["ConfigError", "Diff", "EtlrunError", "Planned", "Run", "Sweep", "diff", "load", "plan"]

_MODULES = {
    "ConfigError": "system.errors",
    "Diff": "api.planned",
    "EtlrunError": "system.errors",
    "Planned": "api.planned",
    "Run": "api.run",
    "Sweep": "api.run",
    "diff": "api.planned",
    "load": "api.run",
    "plan": "api.planned",
}

if TYPE_CHECKING:
    from etlrun.api.planned import Diff, Planned, diff, plan
    from etlrun.api.run import Run, Sweep, load
    from etlrun.system.errors import ConfigError, EtlrunError
else:

    def __getattr__(name: str) -> Any:
        """Import a name of `__all__` when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module 'etlrun' has no attribute {name!r}")
        import importlib

        globals()[name] = found = getattr(importlib.import_module(f"etlrun.{_MODULES[name]}"), name)
        return found


def __dir__() -> list[str]:
    """Return the names that completion offers."""
    return sorted({*globals(), *__all__})
