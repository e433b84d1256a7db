"""Runs with caches on disk: filled, read, shared, broken, and on a disk that is full."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.configs import plan_of
from tests.forked import forked
from tests.networks import trained_here
from tests.pipelines import training_pipeline
from tests.runs import emulated, events_of, finish, losses_of, run_here, small, summary_of


def passes(summary: dict[str, Any]) -> dict[str, list[str]]:
    return {name: pipeline["passes"] for name, pipeline in summary["cache"]["pipelines"].items()}


def on_disk(tmp_path: Path, *overrides: str) -> list[str]:
    return ["cache=disk", f"cache.dir={tmp_path / 'caches'}", *overrides]


def digests(summary: dict[str, Any]) -> list[list[str]]:
    return [[epoch["digest"], epoch["validation_digest"]] for epoch in summary["epochs"]]


@pytest.mark.slow
def test_one_run_fills_what_the_next_one_reads(tiny: Path, tmp_path: Path) -> None:
    words = ("trainer.epochs=2", "trainer.learning_rate=0.1")
    runs = {
        "none": trained_here(tmp_path / "none", tiny, *words, "cache=none"),
        "filled": trained_here(tmp_path / "filled", tiny, *words, *on_disk(tmp_path)),
        "read": trained_here(tmp_path / "read", tiny, *words, *on_disk(tmp_path)),
        "source": trained_here(tmp_path / "source", tiny, *words, "cache=memory", "cache.at=source"),
    }
    assert [status for status, _ in runs.values()] == [0] * 4
    assert passes(runs["filled"][1]) == {"train": ["filled", "read"], "validation": ["filled", "read"]}
    assert passes(runs["read"][1]) == {"train": ["read", "read"], "validation": ["read", "read"]}
    for _, summary in runs.values():
        assert losses_of(summary) == losses_of(runs["none"][1])
    assert losses_of(runs["none"][1])[0] != losses_of(runs["none"][1])[1]
    held = 38 * (32 * 32 * 3 * 4 + 8)
    assert runs["read"][1]["cache"]["pipelines"]["train"]["held_bytes"] == held
    assert (
        "- cache     disk, transformed: train 0.5 MB (2 read); validation 0.1 MB (2 read)"
        in (tmp_path / "read" / "report.md").read_text()
    )


def test_the_pass_that_reads_what_the_first_has_filled_waits_for_no_graph(tiny: Path, tmp_path: Path) -> None:
    with training_pipeline(plan_of(*small(tiny, *on_disk(tmp_path)))) as pipeline:
        counts = []
        for _ in range(3):
            list(pipeline.dataset)
            counts.append(pipeline._traced.experimental_get_tracing_count())
        assert pipeline.keeper is not None
        assert pipeline.keeper.passes == ["filled", "read", "read"]
    assert counts == [3, 3, 3]  # of a pass without the cache, of one that fills it, and of one that reads it


def test_steps_without_end_fill_and_read_a_cache_as_well(tiny: Path, tmp_path: Path) -> None:
    words = ("trainer.epochs=3", "trainer.steps_per_epoch=4")
    _, without = trained_here(tmp_path / "none", tiny, *words, "cache=none")
    status, summary = trained_here(tmp_path / "disk", tiny, *words, *on_disk(tmp_path))
    assert status == 0
    assert passes(summary)["train"][:2] == ["filled", "read"]
    assert losses_of(summary) == losses_of(without)


def part_of(folder: Path) -> Path:
    """The one of the training pipeline, which is the larger one."""
    return max(folder.glob("*/part_*.bin"), key=lambda path: path.stat().st_size)


def test_a_flipped_byte_ends_the_run_and_the_next_one_fills_anew(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, *on_disk(tmp_path, "measure.digest=true"))
    _, sound = run_here(tmp_path / "sound", words)
    part = part_of(tmp_path / "caches")
    data = bytearray(part.read_bytes())
    data[40_000] ^= 4
    part.write_bytes(data)
    status, summary = run_here(tmp_path / "flipped", words)
    assert status == 1
    where, rest = summary["error"].split(": found example 12 with checksum ")
    assert where == str(part)
    found, expected = rest.split("; expected ")
    assert len(found) == 16
    assert expected[16:] == (
        "\n    -> resume the run, or start it again: the cache has been removed and will be rebuilt"
    )
    assert not part.exists()
    status, summary = run_here(tmp_path / "anew", words)
    assert status == 0
    assert passes(summary)["train"] == ["filled"]
    assert digests(summary) == digests(sound)


def test_a_cache_that_was_cut_short_is_filled_anew(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, *on_disk(tmp_path, "measure.digest=true"))
    _, sound = run_here(tmp_path / "sound", words)
    part = part_of(tmp_path / "caches")
    size = part.stat().st_size
    part.write_bytes(part.read_bytes()[:-5])
    status, summary = run_here(tmp_path / "cut", words)
    assert status == 0
    assert passes(summary) == {"train": ["filled"], "validation": ["read"]}
    assert digests(summary) == digests(sound)
    key = summary["cache"]["pipelines"]["train"]["key"]
    text = f"he cache {key} was broken and will be rebuilt: {part}: found {size - 5} bytes; expected {size} bytes"
    assert [event["text"] for event in events_of(tmp_path / "cut") if event["event"] == "cache"] == [f"t{text}"]
    assert f"T{text}." in summary["remarks"]


@pytest.mark.parametrize(("side", "limit"), [(128, 400_000), (32, 60_000)], ids=["large", "smaller than a buffer"])
def test_a_full_disk_ends_the_cache_and_not_the_run(side: int, limit: int, tiny: Path, tmp_path: Path) -> None:
    size = f"transform.resize.size=[{side},{side}]"
    words = emulated(tiny, size, "measure.digest=true", "trainer.epochs=2")
    _, sound = run_here(tmp_path / "sound", [*words, "cache=none"])
    status, _, err = finish(forked([*words, *on_disk(tmp_path)], tmp_path, largest_file_bytes=limit))
    assert status == 0, err
    summary = json.loads(next(tmp_path.glob("outputs/*/*/summary.json")).read_text())
    assert digests(summary) == digests(sound)
    validation = ["uncached", "uncached"] if side == 128 else ["filled", "read"]
    assert passes(summary) == {"train": ["uncached", "uncached"], "validation": validation}
    key = summary["cache"]["pipelines"]["train"]["key"]
    assert (
        f"The cache {key} could not be written in {tmp_path / 'caches'}: File too large; passes run without it."
        in summary["remarks"]
    )
    assert not list((tmp_path / "caches").glob(f"{key}*/part*"))


@pytest.mark.slow
@pytest.mark.parametrize(("when_busy", "others"), [("uncached", {"uncached", "read"}), ("wait", {"read"})])
def test_four_runs_at_once_share_one_fill(when_busy: str, others: set[str], tiny: Path, tmp_path: Path) -> None:
    words = emulated(
        tiny,
        *on_disk(tmp_path, f"cache.when_busy={when_busy}"),
        "measure.digest=true",
        "trainer.epochs=2",
        "dataset.eval_split=null",
        "model.step_ms=20",
    )
    count = 4 if when_busy == "uncached" else 2
    processes = [forked([*words, f"hydra.run.dir={number}"], tmp_path) for number in range(count)]
    ends = [finish(process) for process in processes]
    assert [status for status, _, _ in ends] == [0] * count, ends
    summaries = [summary_of(tmp_path / str(number)) for number in range(count)]
    done = [passes(summary)["train"] for summary in summaries]
    assert sum(kinds[0] == "filled" for kinds in done) == 1
    assert {kind for kinds in done for kind in kinds if kinds[0] != "filled"} <= others
    assert len({epoch["digest"] for summary in summaries for epoch in summary["epochs"]}) == 1


def test_a_pass_that_lost_an_example_is_not_published(tiny: Path, tmp_path: Path) -> None:
    from tests.pictures import bytes_feature, damaged, with_feature

    broken = damaged(tiny, tmp_path / "data", with_feature("image", bytes_feature(b"no picture")))
    words = emulated(tmp_path / "data", *on_disk(tmp_path), "load.shuffle_buffer=64", "load.prefetch=8")
    status, summary = run_here(tmp_path / "run", words)
    assert status == 1
    assert summary["error"].startswith(f"{broken}, record 5: found an image that can't be decoded")
    assert not list((tmp_path / "caches").glob("*/cache.json"))
    assert not list((tmp_path / "caches").glob("*.filling"))


@pytest.mark.slow
def test_killed_fills_leave_nothing_that_a_later_run_trusts(tiny: Path) -> None:
    words = emulated(tiny, "dataset.eval_split=null", "transform.resize.size=[96,96]")
    command = [sys.executable, "-m", "benchmarks.kills", "--kills", "8", *words]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for state in (
        "claimed (at its first example)",
        "partly filled (at its last example)",
        "partly filled (before it is renamed)",
        "published (after it is renamed)",
    ):
        assert f"| {state} | 1 | |" in done.stdout
    assert "| all | 12 | 0 |" in done.stdout
