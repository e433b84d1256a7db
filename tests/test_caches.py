"""`etlrun cache`: ls, why, gc, rm."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from etlrun.cache.store import CacheStore
from etlrun.cli import main as cli
from etlrun.cli.parsers import call
from etlrun.record.record import Record
from etlrun.run import run
from etlrun.stages import STAGES, Stages
from etlrun.stages.cache import CACHES, MemoryCache, Space
from etlrun.system.errors import WorldError
from tests.configs import TENSORFLOW, composed, plan_of, raised
from tests.forked import forked
from tests.golden import Says
from tests.networks import trained_here
from tests.pipelines import training_pipeline
from tests.present import present
from tests.runs import complete_here, emulated, events_of, finish, finish_well, losses_of, run_here, small, summary_of

SCALED = "transform.steps=[decode,center_crop,resize,scale_minus_one_one]"
SCALED_TOO = "transform.eval_steps=[decode,center_crop,resize,scale_minus_one_one]"


def stages_of(*overrides: str) -> list[str]:
    """All stages of the training pipeline, with the steps of each."""
    return [
        " ".join([planned.stage.path, *(step.stage.path.removeprefix("transform.") for step in planned.steps)])
        for planned in plan_of("extract.num_parallel_calls=null", *overrides).train
    ]


def test_steps_after_the_cache_come_after_the_shuffling(says: Says) -> None:
    for at in ("source", "decoded", "center_crop", "transformed"):
        says(stages_of(SCALED, SCALED_TOO, f"cache.at={at}", TENSORFLOW))


def test_features_are_made_before_the_cache_and_a_wide_model_has_more(says: Says) -> None:
    for alpha in (1.0, 1.4):
        plan = plan_of("cache.at=features", "model.trainable=false", f"model.alpha={alpha}")
        says([f"{planned.stage.path}: {planned.gives}" for planned in plan.train])


def test_the_place_of_a_cache_changes_no_fingerprint() -> None:
    frozen = "model.trainable=false"
    plans = [
        plan_of(frozen, "cache=none"),
        plan_of(frozen, "cache=disk", "cache.dir=/caches"),
        *(plan_of(frozen, f"cache.at={at}") for at in ("source", "decoded", "resize", "transformed", "features")),
    ]
    assert len({plan.fingerprint for plan in plans}) == 1


def test_none_takes_the_values_of_the_others() -> None:
    assert stages_of("cache=none", "cache.at=source") == stages_of("cache=none")


def test_a_cache_that_can_not_pay_is_said(says: Says) -> None:
    for words in (["trainer.epochs=1"], ["trainer.epochs=1", "cache=disk"]):
        says(list(plan_of(*words).remarks))
    for word in ("cache=none", "trainer.epochs=2", "trainer.steps_per_epoch=100"):
        assert plan_of("trainer.epochs=1", word).remarks == (), word


@dataclass(frozen=True, kw_only=True)
class Scratch(MemoryCache):
    """A cache target: what it is called, where its space is, and tf.data's call."""

    path: ClassVar[str] = "cache.scratch"

    @classmethod
    def space(cls, folder: Path) -> Space:  # noqa: ARG003 - it has none
        return Space(free_bytes=2 * 10**6, share=0.5, where="a scratch")


def test_a_cache_target_is_a_stage(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CACHES, "scratch", Scratch)
    stages: Stages = {**STAGES, "cache": CACHES}
    words = emulated(tiny, "trainer.epochs=2", "measure.digest=true")
    config = composed(*words)
    found = {}
    for name in ("memory", "scratch"):
        Record.create(tmp_path / name, {**config, "cache": {**config["cache"], "name": name}}, words)
        assert run.run(tmp_path / name, stages) == 0
        found[name] = summary_of(tmp_path / name)
        assert all(of.pop("filled_s") > 0 for of in found[name]["cache"]["pipelines"].values())
    digests = {name: [epoch["digest"] for epoch in summary["epochs"]] for name, summary in found.items()}
    assert digests["scratch"] == digests["memory"]
    assert found["scratch"]["cache"] == {**found["memory"]["cache"], "target": "cache.scratch"}
    config["transform"]["resize"]["size"] = [128, 128]
    Record.create(tmp_path / "large", {**config, "cache": {**config["cache"], "name": "scratch"}}, words)
    assert run.run(tmp_path / "large", stages) == 1
    error = summary_of(tmp_path / "large")["error"]
    assert "with 2 MB free in a scratch; expected at most 50% (the training needs memory, too) of the free" in error


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


def test_a_flipped_byte_ends_the_run_and_the_next_one_fills_anew(tiny: Path, tmp_path: Path, says: Says) -> None:
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
    says(expected[16:])
    assert not part.exists()
    summary = complete_here(tmp_path / "anew", words)
    assert passes(summary)["train"] == ["filled"]
    assert digests(summary) == digests(sound)


def test_a_cache_that_was_cut_short_is_filled_anew(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, *on_disk(tmp_path, "measure.digest=true"))
    _, sound = run_here(tmp_path / "sound", words)
    part = part_of(tmp_path / "caches")
    size = part.stat().st_size
    part.write_bytes(part.read_bytes()[:-5])
    summary = complete_here(tmp_path / "cut", words)
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
    finish_well(forked([*words, *on_disk(tmp_path)], tmp_path, largest_file_bytes=limit))
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
def test_four_runs_at_once_share_one_fill(tiny: Path, tmp_path: Path) -> None:
    words = emulated(
        tiny,
        *on_disk(tmp_path),
        "measure.digest=true",
        "trainer.epochs=2",
        "dataset.eval_split=null",
        "model.step_ms=20",
    )
    processes = [forked([*words, f"hydra.run.dir={number}"], tmp_path) for number in range(4)]
    ends = [finish(process) for process in processes]
    assert [status for status, _, _ in ends] == [0] * 4, ends
    summaries = [summary_of(tmp_path / str(number)) for number in range(4)]
    done = [passes(summary)["train"] for summary in summaries]
    assert sum(kinds[0] == "filled" for kinds in done) == 1
    assert {kind for kinds in done for kind in kinds if kinds[0] != "filled"} <= {"uncached", "read"}
    assert len({epoch["digest"] for summary in summaries for epoch in summary["epochs"]}) == 1


def test_a_pass_that_lost_an_example_is_not_published(tiny: Path, tmp_path: Path) -> None:
    from tests.pictures import damaged, feature_of, with_feature

    broken = damaged(tiny, tmp_path / "data", with_feature("image", feature_of(b"no picture")))
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


Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The caches of a run of 32x32 pixels, and a day later of one of 16x16."""
    scratch = tmp_path_factory.mktemp("made")
    folder = scratch / "caches"
    for side in (16, 32):
        size = f"transform.resize.size=[{side},{side}]"
        assert run_here(scratch / str(side), emulated(tiny, "cache=disk", f"cache.dir={folder}", size))[0] == 0
        if side == 16:
            for path in folder.glob("*/cache.json"):
                os.utime(path, (time.time() - 86_400, time.time() - 86_400))
    return folder


@pytest.fixture
def caches(made: Path, tmp_path: Path, capsys: Captured) -> Path:
    """A copy of them, with their times."""
    capsys.readouterr()
    return shutil.copytree(made, tmp_path / "caches")


def say(capsys: Captured, *words: str) -> str:
    cli.main(["cache", *words])
    return capsys.readouterr().out


def refusal(capsys: Captured, *words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["cache", *words])
    return f"{caught.value.code}: {capsys.readouterr().err}"


def test_ls_tells_what_there_is(caches: Path, capsys: Captured, says: Says) -> None:
    lines = say(capsys, "ls", "--dir", str(caches)).splitlines()
    assert lines[0].split() == ["key", "dataset", "elements", "examples", "MB", "created", "used", "state"]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[1:-1]]
    says(sorted("  ".join([*row[1:5], row[7], "used a day ago" * (row[6] == "1 d ago")]) for row in rows))
    says(lines[-1])


@pytest.mark.smoke
def test_why_finds_a_hit_and_names_the_first_difference(
    tiny: Path, made: Path, caches: Path, capsys: Captured, says: Says
) -> None:
    words = emulated(tiny, "cache=disk", f"cache.dir={caches}")
    before = emulated(tiny, "cache=disk", f"cache.dir={made}", "transform.resize.size=[32,32]")
    hits = say(capsys, "why", *words).splitlines()
    says([re.sub(r"[0-9a-f]{20}", "KEY", line).rsplit("used ")[0] for line in hits])
    lines = say(capsys, "why", *words, "transform.resize.size=[40,32]").splitlines()
    says([re.sub(r"[0-9a-f]{20}", "KEY", line).strip() for line in lines[:3]], BEFORE=" ".join(before))


def test_why_makes_no_folder(tiny: Path, tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "typo"
    words = emulated(tiny, "cache=disk", f"cache.dir={folder}", "dataset.eval_split=null")
    (line,) = say(capsys, "why", *words).splitlines()
    assert re.sub(r"[0-9a-f]{20}", "KEY", line) == f"train     miss  KEY  no cache yet in {folder}"
    assert not folder.exists()


def of_sample(folder: Path) -> list[str]:
    return ["dataset=sample", f"dataset.data_dir={folder}", "dataset.eval_split=null", "cache=disk"]


def test_why_does_not_make_the_sample_of_a_config_that_does_not(tmp_path: Path, capsys: Captured, says: Says) -> None:
    says(refusal(capsys, "why", *of_sample(tmp_path), "dataset.download=false", f"cache.dir={tmp_path}"))


@pytest.mark.slow
def test_why_makes_the_sample(tmp_path: Path, capsys: Captured) -> None:
    (line,) = say(capsys, "why", *of_sample(tmp_path), f"cache.dir={tmp_path / 'caches'}").splitlines()
    assert re.sub(r"[0-9a-f]{20}", "KEY", line) == f"train     miss  KEY  no cache yet in {tmp_path / 'caches'}"
    assert not (tmp_path / "caches").exists()


def test_why_of_a_config_without_a_cache_on_disk_is_refused(capsys: Captured, says: Says) -> None:
    says(refusal(capsys, "why", "cache=memory"))


def test_gc_removes_what_was_not_used_for_longest_once_it_is_told_yes(
    caches: Path, capsys: Captured, says: Says
) -> None:
    store = CacheStore(caches)
    entries = store.entries()
    (caches / f"{entries[0].key}.filling").mkdir()
    before, most = sorted(caches.rglob("*")), str(sum(entry.bytes for entry in entries[:2]))
    for size in (most, "50MB", "1.5 gb", "2TB", "50000000", "50000kB"):
        says(re.sub(r"[0-9a-f]{20}", "KEY", say(capsys, "gc", "--dir", str(caches), "--max-bytes", size)))
    assert sorted(caches.rglob("*")) == before
    says(re.sub(r"[0-9a-f]{20}", "KEY", say(capsys, "gc", "--dir", str(caches), "--max-bytes", most, "--yes")))
    assert {entry.key for entry in store.entries()} == {entry.key for entry in entries[:2]}


def test_what_is_no_size_and_no_folder_is_refused(capsys: Captured, says: Says) -> None:
    """An empty folder is not that of the user: a variable that is not set gives it."""
    for size in ("50 files", "-5"):
        says(refusal(capsys, "gc", "--max-bytes", size).splitlines()[-1])
    says(raised(WorldError, call, "cache", ["gc", "--dir", "", "--max-bytes", "0", "--yes"]))


def test_gc_leaves_a_cache_in_use(caches: Path, capsys: Captured) -> None:
    store = CacheStore(caches)
    key = store.entries()[-1].key
    opened = present(store.open(key))
    out = say(capsys, "gc", "--dir", str(caches), "--max-bytes", "0", "--yes")
    assert f"kept {key}, 0.0 MB: in use" in out.splitlines()
    assert [entry.key for entry in store.entries()] == [key]
    opened.close()


@pytest.mark.smoke
def test_rm_removes_one(caches: Path, capsys: Captured) -> None:
    key = CacheStore(caches).entries()[0].key
    assert say(capsys, "rm", "--dir", str(caches), key[:8]) == f"removed {key}\n"
    assert key not in {entry.key for entry in CacheStore(caches).entries()}


def test_rm_refuses_what_is_not_there_and_what_is_in_use(caches: Path, capsys: Captured, says: Says) -> None:
    store = CacheStore(caches)
    key = store.entries()[0].key
    wrong = f"{key[:-1]}x"
    for word in (wrong, ""):
        says(refusal(capsys, "rm", "--dir", str(caches), word), WRONG=wrong, KEY=key)
    opened = present(store.open(key))
    says(refusal(capsys, "rm", "--dir", str(caches), key), KEY=key)
    opened.close()
