"""`python -m etlrun` with a clock: the moment at which its second training step has ended. Used by start.py.

The first argument is a file that gets the time since the epoch, in seconds; all others are the run's own. The run
itself imports Keras, as it would without a clock.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_STEP = 2
_LISTENED_TO = "keras.src.callbacks.callback_list"


class _Listener(MetaPathFinder):
    """Finds Keras's loop of callbacks, and notes the end of a step in a file."""

    def __init__(self, output: Path) -> None:
        self.output = output

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of that one module, which is changed as soon as it is imported."""
        spec = PathFinder.find_spec(name, path, target) if name == _LISTENED_TO else None
        if spec is not None:
            execute = spec.loader.exec_module  # type: ignore[union-attr]

            def executed(module: ModuleType) -> None:
                execute(module)
                self._listen(module)

            spec.loader.exec_module = executed  # type: ignore[union-attr, method-assign]
        return spec

    def _listen(self, module: Any) -> None:
        ended, steps = module.CallbackList.on_train_batch_end, 0

        def counted(callbacks: Any, batch: int, logs: Any = None) -> None:
            nonlocal steps
            ended(callbacks, batch, logs)
            steps += 1
            if steps == _STEP:
                self.output.write_text(str(time.time()))

        module.CallbackList.on_train_batch_end = counted


def main() -> None:
    """Run, and write down when the second step was over."""
    sys.meta_path.insert(0, _Listener(Path(sys.argv.pop(1))))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    runpy.run_module("etlrun", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
