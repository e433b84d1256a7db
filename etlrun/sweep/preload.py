"""What the server of jobs imports, once for all of them. Nothing in it may start a thread or a device.

To import TensorFlow is to import Keras and its backend; JAX says that a process which has it must not be forked.
With another backend than TensorFlow each job imports it by itself.
"""

import json
import os
from pathlib import Path

from etlrun.run.backend import native_messages_kept


def _keras_backend() -> str:
    """As Keras chooses it."""
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        return str(json.loads((folder / "keras.json").read_text(encoding="utf-8"))["backend"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return "tensorflow"


if _keras_backend() == "tensorflow":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    with native_messages_kept():
        import etlrun.run.drain
        import etlrun.run.fit
        import etlrun.sweep.process  # noqa: F401
