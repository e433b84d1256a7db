import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from etlrun.run.loading import loading


def test_collections_go_on_after_an_import_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow_datasets", raising=False)
    with suppress(ImportError), loading():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


PLOTS = """
import sys
from etlrun.run.loading import import_keras, loading

with loading():
    import_keras()
    assert "matplotlib.pyplot" not in sys.modules
    from matplotlib import pyplot  # as an installed step may do
import keras, numpy

del sys.modules["matplotlib.pyplot"]
keras.visualization.plot_image_gallery(numpy.zeros((4, 8, 8, 3), "uint8"), rows=2, cols=2, path="gallery.png")
assert "matplotlib.pyplot" in sys.modules
"""


def test_keras_imports_pyplot_when_it_plots(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLOTS]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "gallery.png").read_bytes()[:4] == b"\x89PNG"
