"""The examples of docs/python.md run one after the other, made small."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.quick import quick_probes, shallow

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
SMALL = ("model.trainable=false", "transform.resize.size=[32,32]", "load.batch_size=16")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_examples_of_the_docs_run(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import etlrun

    planned = etlrun.plan
    words = (*SMALL, f"dataset.data_dir={sample}")
    monkeypatch.setattr(etlrun, "plan", lambda *given: planned(*given, *words))
    monkeypatch.chdir(tmp_path)
    quick_probes(monkeypatch)
    shallow(monkeypatch)
    names: dict[str, Any] = {}
    printed = []
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - our own docs
        printed.append(capsys.readouterr().out)
    first, look, trained, change, used = printed
    assert first == f"{names['planned'].fingerprint} 16\n"
    assert look == "(16, 32, 32, 3) <dtype: 'uint8'> (16,)\n"
    assert trained.startswith("completed ")
    assert change.splitlines()[:2] == ["False False True", "changes only the speed"]
    assert len(used.splitlines()) == 4
