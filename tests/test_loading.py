import gc
import sys
from contextlib import suppress

import pytest

from etlrun.system.loading import loading


def test_collections_go_on_after_an_import_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow_datasets", raising=False)
    with suppress(ImportError), loading():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
