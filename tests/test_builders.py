"""Builders of TFDS, found without importing the code of all its datasets."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from etlrun.sources.tfds import open_builder
from etlrun.stages.dataset import TfdsDataset
from etlrun.system.errors import WorldError
from tests.configs import spec_of
from tests.runs import small

OF_ALL = """
import sys
from etlrun.sources.tfds import open_builder
from tests.configs import spec_of
for words in (["dataset.data_dir=nowhere"], sys.argv[1:]):
    open_builder(spec_of(*words).dataset)
print([name for name in sys.modules if name.startswith("tensorflow_datasets.image_classification")])
"""


@pytest.fixture
def versions(tiny: Path, tmp_path: Path) -> Path:
    """The data_dir of a dataset in three versions, of which the highest is not the last by its name."""
    (home,) = tiny.glob("*/*/dataset_info.json")
    name, version = home.parent.parent.name, home.parent.name
    for other in (version, "4.2.0", "4.10.0"):
        shutil.copytree(home.parent, tmp_path / name / other)
        info = json.loads(home.read_text())
        (tmp_path / name / other / "dataset_info.json").write_text(json.dumps({**info, "version": other}))
    return tmp_path


def _dataset(data_dir: Path, version: str) -> TfdsDataset:
    found = spec_of(*small(data_dir), f"dataset.version={version}").dataset
    assert isinstance(found, TfdsDataset)
    return found


@pytest.mark.parametrize(("asked", "found"), [("4.*.*", "4.10.0"), ("4.2.*", "4.2.0"), ("4.10.0", "4.10.0")])
def test_it_is_that_of_tfds(asked: str, found: str, versions: Path) -> None:
    dataset = _dataset(versions, asked)
    ours, theirs = open_builder(dataset), tfds.builder(f"{dataset.name}:{asked}", data_dir=str(versions))
    assert type(ours) is type(theirs)
    assert (ours.data_path, ours.info.full_name) == (theirs.data_path, theirs.info.full_name)
    assert ours.data_path == versions / dataset.name / found


def test_a_version_that_is_not_there_is_refused_as_by_tfds(versions: Path) -> None:
    dataset = _dataset(versions, "5.0.0")
    with pytest.raises(
        WorldError, match=r"^dataset.version: found 5.0.0, which is not in \S+; expected a version that is prepared: "
    ):
        open_builder(dataset)


def test_the_code_of_other_datasets_is_not_imported(versions: Path) -> None:
    command = [sys.executable, "-c", OF_ALL, *small(versions), "dataset.version=4.*.*"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
