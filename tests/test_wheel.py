import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.runs import finish, start

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_a_wheel_carries_the_configs_and_runs_from_anywhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    shipped = {path.relative_to(installed / "etlrun" / "conf") for path in installed.glob("etlrun/conf/**/*.yaml")}
    assert shipped == {path.relative_to(CHECKOUT / "conf") for path in CHECKOUT.glob("conf/**/*.yaml")}

    from_wheel = start(["plan", "experiment=parallel"], tmp_path, PYTHONPATH=str(installed))
    from_checkout = start(["plan", "experiment=parallel"], CHECKOUT)
    assert finish(from_wheel) == finish(from_checkout)
