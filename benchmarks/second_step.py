"""`python -m etlrun` with a clock: the moment at which its second training step has ended. Used by start.py.

The first argument is a file that gets the time since the epoch, in seconds; all others are the run's own. Keras is
imported before etlrun is, so that its loop can be listened to, which a run imports anyway.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

_STEP = 2


def main() -> None:
    """Run, and write down when the second step was over."""
    output = Path(sys.argv.pop(1))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from keras.callbacks import CallbackList

    ended, steps = CallbackList.on_train_batch_end, 0

    def counted(self: Any, batch: int, logs: Any = None) -> None:
        nonlocal steps
        ended(self, batch, logs)
        steps += 1
        if steps == _STEP:
            output.write_text(str(time.time()))

    CallbackList.on_train_batch_end = counted
    runpy.run_module("etlrun", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
