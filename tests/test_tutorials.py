"""The tutorials and how-to pages are played from an empty folder, and what they show is what is printed."""

from pathlib import Path

import pytest

from tests.tutorials import PAGES, blocks, faults, lacks_weights

pytestmark = pytest.mark.slow

NEEDS = {
    "mlflow": ["mlflow-skinny"],
    "onnx": ["onnx", "onnxruntime", "tf2onnx"],
    "s3": ["s3fs", "moto"],
    "several_gpus": ["jax"],
    "slurm": ["hydra-submitit-launcher"],
}
"""Packages of pages that name an extra."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.needs(*NEEDS.get(page.stem, []))) for page in PAGES],
    ids=lambda page: f"{page.parent.name}/{page.stem}",
)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    if lacks_weights(page):
        pytest.skip("no weights of ImageNet here; set ETLRUN_SHARED")
    wrong = faults(page, tmp_path)
    assert not wrong, "\n".join(["", *wrong])


def test_tutorials_and_how_to_pages_are_of_one_shape() -> None:
    """Commands and their outputs, and where to go on; how-to pages are recipes, and no guides."""
    assert len([page for page in PAGES if page.parent.name == "tutorials"]) == 6
    for page in PAGES:
        languages = {block.language for block in blocks(page)}
        text = page.read_text(encoding="utf-8")
        assert {"bash", ""} <= languages, page.name
        assert "](../" in text.rpartition("\n```\n")[2], page.name
        if page.parent.name == "tutorials":
            assert "\n## What next\n" in text, page.name
    assert not {*NEEDS} - {page.stem for page in PAGES}
