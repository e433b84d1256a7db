"""Files that can't be opened or read end a run by name, whether or not broken records are skipped."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from etlrun.cache.store import folder_of
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline, fits
from etlrun.measure.assessment import Work
from etlrun.record.record import Record
from etlrun.run import run
from etlrun.run.session import at_work, contexts_of, opened, prepared
from etlrun.sources.base import open_source
from etlrun.sources.corrupt import Losses
from etlrun.stages import STAGES
from etlrun.system.errors import WorldError
from tests import pictures
from tests.configs import composed
from tests.programs import of_tiny
from tests.runs import emulated, run_here, summary_of

REMEDY = "check the file's permissions and its storage"
SHARD = "a shard of tiny_pictures/1.2.0"


def to_a_folder(shard: Path) -> None:
    shard.unlink()
    shard.mkdir()


def to_a_pipe(shard: Path) -> None:
    shard.unlink()
    os.mkfifo(shard)


def to_what_can_not_be_read(shard: Path) -> None:
    """Reading its first byte is an I/O error."""
    shard.unlink()
    shard.symlink_to("/proc/self/mem")


def to_a_dead_link(shard: Path) -> None:
    shard.unlink()
    shard.symlink_to("nowhere")


def told(shard: Path, found: str) -> str:
    if found == "no such file":
        remedy = f"remove {shard.parent} and run again, so that the dataset is prepared again"
        return f"{shard}: found {found}; expected {SHARD}\n    -> {remedy}"
    return f"{shard}: found {found}; expected {SHARD} that can be read\n    -> {REMEDY}"


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (to_a_folder, "not a regular file"),
        (to_a_pipe, "not a regular file"),
        (to_a_dead_link, "no such file"),
        (to_what_can_not_be_read, "Input/output error"),
    ],
)
def test_what_can_not_be_read_is_named_at_the_start(
    damage: Callable[[Path], None], found: str, on_corrupt: str, tiny: Path, tmp_path: Path
) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", damage)
    words = emulated(tmp_path / "data", f"dataset.on_corrupt={on_corrupt}")
    status, summary = run_here(tmp_path / "run", words)
    assert status == 1
    assert summary["error"] == told(shard, found)
    assert "epochs" not in summary or not summary["epochs"]


@pytest.mark.slow
def test_a_file_without_permission_is_named_at_the_start(tiny: Path, tmp_path: Path) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv, with which root gives up its right to read everything")
    shard = pictures.damaged(tiny, tmp_path / "data", lambda shard: shard.chmod(0))
    own = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    words = [*emulated(tmp_path / "data", "dataset.on_corrupt=skip"), f"hydra.run.dir={tmp_path / 'run'}"]
    command = [*own, sys.executable, "-m", "etlrun", *words]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 1
    assert summary_of(tmp_path / "run")["error"] == told(shard, "Permission denied")


READERS = {
    "sequential": ("extract=sequential",),
    "interleave, serial": ("extract.num_parallel_calls=null",),
    "interleave, one call": ("extract.num_parallel_calls=1",),
    "interleave": (),
    "tfds": ("extract=tfds",),
}


def error_of(data_dir: Path, folder: Path, damage: Callable[[], object], *overrides: str) -> str:
    """With which a run ends whose files are damaged when it has found them all, and has read nothing."""
    words = emulated(data_dir, *overrides)
    plan = resolve(Request(overrides=words), STAGES).plan
    run.freeze(folder, composed(*words), words)
    work = prepared(plan, Record(folder), opened(plan))
    damage()
    with pytest.raises(WorldError) as caught:
        read(work)
    return str(caught.value)


def read(work: Work) -> None:
    with at_work(work):
        for pipeline in work.pipelines.values():
            for _ in pipeline.dataset:
                pass


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_goes_while_it_is_needed_is_named(reader: str, on_corrupt: str, tiny: Path, tmp_path: Path) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    words = (f"dataset.on_corrupt={on_corrupt}", "cache=none", *READERS[reader])
    assert error_of(tmp_path / "data", tmp_path / "run", shard.unlink, *words) == told(shard, "no such file")


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_an_error_of_the_storage_is_named_in_every_pipeline(
    split: str, on_corrupt: str, tiny: Path, tmp_path: Path
) -> None:
    pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    shard = sorted((tmp_path / "data").rglob("*.tfrecord-*"))[0 if split == "train" else -1]
    words = (f"dataset.on_corrupt={on_corrupt}", "dataset.split='train[:24]'", "dataset.eval_split='train[-12:]'")
    found = error_of(tmp_path / "data", tmp_path / "run", lambda: to_what_can_not_be_read(shard), *words)
    assert found == told(shard, "Input/output error")


def test_a_cache_on_disk_is_not_left_without_what_could_not_be_read(tiny: Path, tmp_path: Path) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    caches = tmp_path / "caches"
    words = ("dataset.on_corrupt=skip", "cache=disk", f"cache.dir={caches}", "dataset.eval_split=null")
    assert error_of(tmp_path / "data", tmp_path / "run", shard.unlink, *words) == told(shard, "no such file")
    assert list(caches.glob("*/cache.json")) == []


@pytest.mark.parametrize(("kept", "lost"), [(38, None), (37, 1), (30, None)])
def test_nothing_but_broken_records_is_missing(kept: int, lost: int | None, tiny: Path, tmp_path: Path) -> None:
    damage = pictures.with_feature("label", None) if lost else lambda _: None
    pictures.damaged(tiny, tmp_path / "data", damage)
    source = open_source(resolve(Request(overrides=emulated(tmp_path / "data")), STAGES).plan.spec.dataset)
    split, losses = source.split("train[:80%]", "dataset.split"), Losses()
    if kept == 30:
        with pytest.raises(WorldError) as caught:
            losses.explain(source, split, kept)
        assert str(caught.value) == (
            "dataset.on_corrupt: found 30 examples in a pass over 'train[:80%]', which has 38, 0 of them corrupt; "
            "expected 38: only corrupt records may be missing\n"
            "    -> check the storage for errors; dataset.on_corrupt=raise reports examples that a step can't process"
        )
        assert losses.failure is caught.value
    else:
        losses.explain(source, split, kept)
        assert losses.failure is None
        assert len(losses.records or ()) == (lost or 0)


def test_a_forecast_ends_where_a_file_can_not_be_opened(tiny: Path, tmp_path: Path) -> None:
    pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    words = emulated(tmp_path / "data", "extract=sequential", "cache=memory", "cache.at=decoded")
    plan = resolve(Request(overrides=words), STAGES).plan
    contexts = contexts_of(plan, open_source(plan.spec.dataset))
    pipelines = {name: Pipeline(plan.pipelines[name], context) for name, context in contexts.items()}
    whole = fits(plan, pipelines, folder_of(None))
    min((tmp_path / "data").rglob("*.tfrecord-*")).unlink()
    assert fits(plan, pipelines, folder_of(None)) < whole


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["sequential", "interleave, serial", "tfds"])
def test_a_program_ends_where_a_file_can_not_be_opened(reader: str, tiny: Path, tmp_path: Path) -> None:
    shard = pictures.damaged(tiny, tmp_path / "data", lambda _: None)
    words = ("dataset.on_corrupt=skip", "cache=none", *READERS[reader])
    _, module = of_tiny(tmp_path / "data", tmp_path, *words)
    dataset = module.train_dataset()
    shard.unlink()
    with pytest.raises(tf.errors.NotFoundError, match=f"{shard}; No such file or directory"):
        for _ in dataset:
            pass
