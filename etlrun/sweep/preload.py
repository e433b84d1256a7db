"""Modules that the fork server of jobs imports, once for all of them. Nothing here may start a thread or a device.

Importing TensorFlow also imports Keras and its backend, and a process that has imported JAX must not be forked: with
another backend than TensorFlow each job does its own imports.
"""

import json
import os
from pathlib import Path

from etlrun.system.loading import loading


def _keras_backend() -> str:
    """Return the name of the backend, chosen as Keras does."""
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        return str(json.loads((folder / "keras.json").read_text(encoding="utf-8"))["backend"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return "tensorflow"


if _keras_backend() == "tensorflow":
    with loading():
        import tensorflow_datasets

        import etlrun.run.drain
        import etlrun.run.fit
        import etlrun.sweep.process  # noqa: F401

        tensorflow_datasets.list_builders(with_community_datasets=False)  # imports them: a job does for any dataset
