import gc
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from etlrun.run.loading import loading
from tests.forked import Forked
from tests.runs import finish


def test_collections_go_on_after_an_import_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow_datasets", raising=False)
    with suppress(ImportError), loading():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def _plot() -> None:
    import keras
    import numpy as np

    assert "keras.src.visualization" in sys.modules
    assert "matplotlib.pyplot" not in sys.modules
    keras.visualization.plot_image_gallery(np.zeros((4, 8, 8, 3), "uint8"), rows=2, cols=2, path="gallery.png")
    assert "matplotlib.pyplot" in sys.modules


def test_keras_imports_pyplot_when_it_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    status, _, err = finish(Forked(_plot, cwd))
    assert (status, (cwd / "gallery.png").read_bytes()[:4]) == (0, b"\x89PNG"), err
