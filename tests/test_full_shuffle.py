"""The order of examples: a uniform permutation by number, where a buffer stands, and what follows skipped batches."""

import shutil
import tracemalloc
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.review.difference import compare
from etlrun.run.backend import seed_all
from etlrun.sources.base import on_disk
from etlrun.sources.content import Numbered, Shard, starts_of
from etlrun.stages.load import FullShuffle
from etlrun.system.errors import WorldError
from tests.configs import TENSORFLOW, plan_of, raised
from tests.golden import Says
from tests.own import PETS, image, of_folder
from tests.pictures import NUM_EXAMPLES
from tests.pipelines import as_bytes, batches_of, passes_of, training_pipeline
from tests.present import present
from tests.runs import emulated, events_of, run_here, small

AFTER_ALL = "load.shuffle_at=before_batch"
LISTS = ("steps", "eval_steps")
FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"


def stages_of(*overrides: str) -> list[str]:
    return [planned.stage.path for planned in plan_of(*overrides).train]


def test_without_a_cache_the_buffer_holds_what_is_read() -> None:
    assert stages_of("cache=none")[:3] == ["extract.interleave", "load.shuffle", "load.batch"]
    assert stages_of("cache=none", "extract=tfds")[:3] == ["extract.tfds", "load.shuffle", "load.batch"]
    assert "load.shuffle" not in [planned.stage.path for planned in plan_of("cache=none").evaluation]


@pytest.mark.parametrize(
    "overrides",
    [
        ("cache=none", AFTER_ALL),
        ("cache=none", "transform.deterministic=false"),
        ("cache=none", "dataset.on_corrupt=skip"),
        ("cache=none", "extract=tfds", "extract.decode=true", *(f"transform.{name}=[resize]" for name in LISTS)),
        ("cache=memory",),
        ("cache=disk",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_where_it_would_change_examples_or_hold_larger_ones_all_steps_come_first(overrides: tuple[str, ...]) -> None:
    stages = stages_of(*overrides, "trainer=drain")
    assert stages.index("load.shuffle") > stages.index("transform.map")


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (FLIPPED,),
        ("extract.shuffle_files=true", "load.shuffle_buffer=5"),
        ("extract=sequential", "transform.num_parallel_calls=null"),
        ("extract=tfds",),
        ("load.drop_remainder=true", "load.shuffle_buffer=1000"),
    ],
    ids=" ".join,
)
def test_each_pass_has_the_same_batches(overrides: tuple[str, ...], tiny: Path) -> None:
    words = small(tiny, "cache=none", *overrides)
    early, late = plan_of(*words), plan_of(*words, AFTER_ALL)
    assert [planned.stage.path for planned in early.train] != [planned.stage.path for planned in late.train]
    passes = passes_of(early, 3)
    assert passes == passes_of(late, 3)
    assert passes[0] != passes[1] != passes[2]
    with training_pipeline(early) as pipeline:
        per_pass = len(passes[0])
        assert as_bytes(pipeline.endless().take(2 * per_pass)) == [*passes[0], *passes[1]]


def test_it_changes_the_speed_alone() -> None:
    early, late = plan_of("cache=none"), plan_of("cache=none", AFTER_ALL)
    assert early.fingerprint == late.fingerprint == plan_of().fingerprint
    found = compare(early, late)
    assert [(change.path, str(change.kind)) for change in found.differences] == [("load.shuffle_at", "speed")]


def test_a_run_measures_the_stages_in_their_place(tiny: Path, tmp_path: Path) -> None:
    """Wherever the buffer is, the transformation is a stage of its own, and the rows are in the order of the plan."""
    words = emulated(tiny, "cache=none", "load.shuffle_buffer=38", "measure.digest=true", "dataset.eval_split=null")
    words += [TENSORFLOW, "trainer.epochs=4", "transform.resize.size=[224,224]", "model.step_ms=20"]
    _, early = run_here(tmp_path / "early", words)
    _, late = run_here(tmp_path / "late", [*words, AFTER_ALL])
    assert [epoch["digest"] for epoch in early["epochs"]] == [epoch["digest"] for epoch in late["epochs"]]
    rows = {row["stage"]: row["examples"] for row in early["stages"]}
    assert list(rows) == ["extract.interleave", "load.shuffle", "transform.map", "load.batch", "load.prefetch"]
    assert rows["load.shuffle"] == 38
    of_late = [row["stage"] for row in late["stages"]]
    assert of_late == ["extract.interleave", "transform.map", "load.shuffle", "load.batch", "load.prefetch"]


def test_a_pass_starts_before_all_images_of_its_buffer_are_decoded(folder: Path) -> None:
    """A broken image ends the pass at its turn, and not while the buffer is filled."""
    (folder / PETS[1] / "no 1.jpg").write_bytes(image(1)[:200])
    words = ("cache=none", "dataset.split=train", "load.shuffle_buffer=40", "load.batch_size=2", "load.prefetch=0")

    def first_batch(*overrides: str) -> int:
        plan = of_folder(folder, *words, "transform.num_parallel_calls=null", *overrides)
        with training_pipeline(plan) as pipeline:
            return len(next(iter(pipeline.dataset))[1])

    assert first_batch() == 2
    with pytest.raises(tf.errors.InvalidArgumentError):
        first_batch(AFTER_ALL)


def test_a_plan_tells_what_the_buffer_takes(photos: Path) -> None:
    """Known where all examples have one size; forecast from the dataset's files where they are still encoded."""

    def buffer(overrides: str, read_bytes: float | None = None) -> str:
        lines = render.text(plan_of(overrides), read_bytes=read_bytes).splitlines()
        return next(" ".join(line.split()) for line in lines if "buffer_size" in line)

    assert buffer("cache=memory") == "buffer_size 1024 (13 MB) training"
    assert buffer("cache=none") == "buffer_size 1024 training"
    dataset = plan_of("experiment=cats_vs_dogs", f"dataset.data_dir={photos}").spec.dataset
    known = present(on_disk(dataset).examples(dataset.split))
    assert buffer("cache=none", known.encoded_bytes) == "buffer_size 1024 (about 23 MB) training"


@pytest.mark.parametrize("seed", [0, 5])
def test_the_order_of_a_pass_does_not_depend_on_what_a_program_has_seeded(seed: int, tiny: Path) -> None:
    plan = plan_of(*small(tiny, "cache=none"))
    seed_all(plan.spec.trainer.seed)
    expected = passes_of(plan, 1)
    tf.random.set_seed(seed)
    assert passes_of(plan, 1) == expected


NUMBERED = ("load.shuffle=full", "extract=sequential")
CONFIGS = [
    ("cache=none",),
    ("cache=none", "load=plain"),
    ("cache=none", "load.shuffle_at=before_batch", FLIPPED),
    ("cache=none", "extract.shuffle_files=true", "load.shuffle_buffer=5", FLIPPED),
    ("cache=none", "load.drop_remainder=true"),
    ("cache=none", "transform.decode.library=tensorflow", FLIPPED),
    ("cache=none", "dataset.on_corrupt=skip"),
    ("cache=none", "load.mixup_alpha=0.2", *NUMBERED),
    ("cache=none", "extract=tfds"),
    ("cache=memory", "cache.at=resize", FLIPPED),
    ("cache=disk", "cache.at=resize", FLIPPED),
    ("cache=disk", "cache.at=decoded", *NUMBERED, FLIPPED),
    ("cache=disk", "load=plain"),
]
SKIPPED, PASSES = 3, 3


@pytest.mark.parametrize("overrides", CONFIGS, ids=" ".join)
def test_a_pass_goes_on_after_the_batches_that_are_skipped(
    overrides: tuple[str, ...], tiny: Path, tmp_path: Path
) -> None:
    """The second pass; and the first, where a cache is filled by it, and once without a cache."""

    def plan(name: str) -> Plan:
        return plan_of(*small(tiny, "load.batch_size=4", *overrides, *_apart(overrides, tmp_path / name)))

    with training_pipeline(plan("whole")) as pipeline:
        expected = [batches_of(pipeline.dataset) for _ in range(PASSES)]
    for skipped_pass in (1, 2) if overrides == CONFIGS[0] or overrides[0] != "cache=none" else (2,):
        with training_pipeline(plan(f"resumed in {skipped_pass}")) as pipeline:
            pipeline.skip(skipped_pass - 1, SKIPPED)
            found = [batches_of(pipeline.dataset) for _ in range(skipped_pass, PASSES + 1)]
        assert found == [expected[skipped_pass - 1][SKIPPED:], *expected[skipped_pass:]], skipped_pass


@pytest.mark.parametrize(
    "overrides", [("cache=none", FLIPPED), ("cache=memory",), ("cache=disk",), ("cache=none", *NUMBERED)], ids=" ".join
)
def test_so_do_endless_passes(overrides: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    found = []
    for skipped in (0, SKIPPED):
        apart = _apart(overrides, tmp_path / str(skipped))
        with training_pipeline(plan_of(*small(tiny, "load.batch_size=4", *overrides, *apart))) as pipeline:
            pipeline.skip(1, skipped)
            found.append(batches_of(islice(pipeline.endless(), 30 - skipped)))
    whole, resumed = found
    assert resumed == whole[SKIPPED:]


def test_skipped_images_are_not_decoded(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etlrun.stages.image import Decode

    counted, decode = tf.Variable(0), Decode.op

    def op(image: Any, **values: Any) -> Any:
        with tf.control_dependencies([counted.assign_add(1)]):
            return decode(tf.identity(image), **values)

    monkeypatch.setattr(Decode, "op", staticmethod(op))
    plan = plan_of(*small(tiny, TENSORFLOW, "load.batch_size=4", "cache=none", "transform.num_parallel_calls=null"))
    with training_pipeline(plan) as pipeline:
        pipeline.skip(0, SKIPPED)
        batches = len(batches_of(pipeline.dataset))
        count = pipeline.split.num_examples
    assert batches == -(-count // 4) - SKIPPED
    assert int(counted) == count - 4 * SKIPPED


def _apart(overrides: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    return (f"cache.dir={folder}",) if "cache=disk" in overrides else ()


FULL = ("load.shuffle=full", "extract=sequential", "cache=none")


def orders(count: int, passes: int) -> list[tuple[int, ...]]:
    """The orders of the passes of several runs, each with the seed that it has there."""
    seeds = (number + seed * 1_000_003 for seed in range(passes // 10) for number in range(1, 11))
    return [tuple(FullShuffle.op(count, seed).tolist()) for seed in seeds]


def test_all_orders_are_equally_likely() -> None:
    found = Counter(orders(4, 12_000))
    assert len(found) == 24
    assert stats.chisquare(list(found.values())).pvalue > 0.001


def test_each_example_is_at_each_place_equally_often_and_neighbours_part() -> None:
    of_all = np.array(orders(50, 5_000))
    places = np.array([np.bincount(of_all[:, place], minlength=50) for place in range(50)])
    assert stats.chisquare(places, axis=None, ddof=98).pvalue > 0.001
    apart = np.diff(of_all, axis=1)
    assert abs(float((apart == 1).mean()) - 1 / 50) < 0.001


def test_a_million_numbers_are_each_there_once() -> None:
    tracemalloc.start()
    found = FullShuffle.op(1_000_000, 1)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(np.sort(found), np.arange(1_000_000))
    assert peak_bytes < 8 * 1_000_000 * 1.1
    assert not np.array_equal(found, FullShuffle.op(1_000_000, 2))


@pytest.fixture(scope="module")
def uncached(tiny: Path) -> list[Any]:
    """Batches of three passes that read the files by number."""
    return passes_of(plan_of(*small(tiny, *FULL, FLIPPED)), 3)


def test_each_pass_has_all_examples_in_another_order(tiny: Path) -> None:
    def images_of(*overrides: str) -> list[list[bytes]]:
        """The images of two passes, which nothing but their order can tell apart."""
        with training_pipeline(plan_of(*small(tiny, *FULL[1:], *overrides))) as pipeline:
            return [
                [image.tobytes() for images, _ in pipeline.dataset for image in images.numpy()] for _pass in range(2)
            ]

    in_order, full = images_of("load.shuffle_buffer=0"), images_of(FULL[0])
    assert in_order[0] == in_order[1]
    assert in_order[0] != full[0] != full[1] != in_order[0]
    assert sorted(full[0]) == sorted(full[1]) == sorted(in_order[0])


@pytest.mark.parametrize("place", [0, 9, 20, -1])
def test_a_record_is_read_only_if_its_length_and_its_data_have_their_checksums(
    place: int, tiny: Path, tmp_path: Path
) -> None:
    shard = Path(shutil.copy(min(tiny.rglob("*-train.tfrecord-*")), tmp_path))
    records = Numbered([Shard(path=str(shard), skip=0, take=1)])
    assert records.read(np.array([0]))[0] == next(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())
    end = int(starts_of([Shard(path=str(shard), skip=0, take=1)])[0][1])
    content = bytearray(shard.read_bytes())
    content[place % end] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ValueError, match=f"^corrupted record at 0 of {shard}$"):
        records.read(np.array([0]))


def test_a_part_of_a_split_is_read_by_number_too(tiny: Path) -> None:
    words = small(tiny, *FULL[1:], "dataset.split='train[10:31]'", "load.batch_size=1")
    (in_order,), (full,) = (passes_of(plan_of(*words, of), 1) for of in ("load.shuffle_buffer=0", FULL[0]))
    assert len(full) == 21
    assert (sorted(full), full == in_order) == (sorted(in_order), False)


@pytest.mark.parametrize("at", ["source", "decoded", "resize"])
def test_a_cache_on_disk_is_read_in_the_same_order(at: str, tiny: Path, tmp_path: Path, uncached: list[Any]) -> None:
    """While it is filled, in later passes and in later runs; in epochs of a number of steps, too."""
    words = small(tiny, *FULL, FLIPPED, "cache=disk", f"cache.at={at}", f"cache.dir={tmp_path}")
    assert passes_of(plan_of(*words), 2) == uncached[:2]
    assert passes_of(plan_of(*words), 3) == uncached
    with training_pipeline(plan_of(*words, f"cache.dir={tmp_path / 'other'}")) as pipeline:
        assert as_bytes(pipeline.endless().take(2 * len(uncached[0]))) == [*uncached[0], *uncached[1]]
        assert pipeline.keeper is not None
        assert pipeline.keeper.passes[:3] == ["filled", "read", "read"]
        assert pipeline.filling_s > 0


def test_while_another_run_fills_the_cache_the_files_are_read_in_the_same_order(
    tiny: Path, tmp_path: Path, uncached: list[Any]
) -> None:
    plan = plan_of(*small(tiny, *FULL, FLIPPED, "cache=disk", "cache.at=resize", f"cache.dir={tmp_path}"))
    said: list[str] = []
    with training_pipeline(plan) as other, training_pipeline(plan, said.append) as pipeline:
        assert as_bytes(pipeline.dataset) == uncached[0]
        assert as_bytes(other.dataset) == uncached[0]
        assert as_bytes(pipeline.dataset) == uncached[1]
        assert pipeline.keeper is not None
        assert pipeline.keeper.passes == ["uncached", "read"]
    assert len(said) == 1


def test_a_cache_that_can_not_be_written_costs_time_alone(tiny: Path, tmp_path: Path, uncached: list[Any]) -> None:
    plan = plan_of(*small(tiny, *FULL, FLIPPED, "cache=disk", "cache.at=resize", f"cache.dir={tmp_path / 'caches'}"))
    said: list[str] = []
    with training_pipeline(plan, said.append) as pipeline:
        filling = next((tmp_path / "caches").glob("*.filling"))
        shutil.rmtree(filling)
        filling.write_text("a file where the folder was")
        assert [as_bytes(pipeline.dataset) for _ in range(3)] == uncached
        assert pipeline.keeper is not None
        assert set(pipeline.keeper.passes) == {"uncached"}
    assert "passes run without it" in said[0]


def test_runs_with_and_without_a_cache_have_the_same_digests_and_losses(tiny: Path, tmp_path: Path) -> None:
    slowly = ("load.batch_size=4", "load.prefetch=1", "transform.num_parallel_calls=1")  # so that a sample sees it
    words = small(tiny, *FULL, *slowly, "trainer.epochs=2", "measure.digest=true")
    _, files = run_here(tmp_path / "files", words)
    _, cached = run_here(tmp_path / "cached", [*words, "cache=disk", f"cache.dir={tmp_path / 'caches'}"])
    for name in ("loss", "accuracy", "val_loss", "digest"):
        assert [epoch[name] for epoch in files["epochs"]] == [epoch[name] for epoch in cached["epochs"]]
    found = [event for event in events_of(tmp_path / "files") if event["event"] == "stages"]
    rows = next(event["stages"] for event in found if event["pipeline"] == "train")
    assert [row["stage"] for row in rows][:2] == ["extract.sequential", "load.shuffle_full"]
    assert cached["cache"]["pipelines"]["train"]["passes"] == ["filled", "read", "read"]


def test_a_single_epoch_gains_nothing_from_the_cache_that_it_waits_for() -> None:
    note = "cache.disk benefits only other runs: a single epoch waits for all of it, and reads it once."
    assert plan_of(*FULL, "cache=disk", "trainer.epochs=1").remarks == (note,)
    assert plan_of(*FULL, "cache=disk").remarks == ()


@pytest.mark.parametrize(("trainable", "kind"), [("false", "order"), ("true", "training")])
def test_a_diff_says_order_and_nothing_of_a_buffer_that_is_not_used(trainable: str, kind: str) -> None:
    model = f"model.trainable={trainable}"
    found = compare(plan_of("extract=sequential", "cache=none", model), plan_of(*FULL, "load.shuffle_buffer=7", model))
    assert [(change.path, str(change.kind)) for change in found.differences] == [("load.shuffle", kind)]
    assert plan_of(*FULL).fingerprint == plan_of(*FULL, "cache=disk", "load.shuffle_at=before_batch").fingerprint
    assert plan_of(*FULL).fingerprint != plan_of(*FULL, "load.shuffle=buffer").fingerprint


@pytest.mark.parametrize(("place", "record"), [(-40, NUM_EXAMPLES // 4 - 1), (9, 0)])
def test_a_damaged_record_or_length_is_named(place: int, record: int, tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "data")
    shard = sorted((tmp_path / "data").rglob("*-train.tfrecord-*"))[1]
    content = bytearray(shard.read_bytes())
    content[place] ^= 1
    shard.write_bytes(content)
    status, summary = run_here(tmp_path / "run", emulated(tmp_path / "data", *FULL, "trainer.epochs=1"))
    assert status == 1
    assert f"{shard}, record {record}: found corrupted record" in summary["error"]
    assert "or set dataset.on_corrupt=skip and load.shuffle=buffer to skip" in summary["error"]


def test_a_truncated_shard_is_named_before_the_first_step(tiny: Path, tmp_path: Path, says: Says) -> None:
    shutil.copytree(tiny, tmp_path / "data")
    shard = sorted((tmp_path / "data").rglob("*-train.tfrecord-*"))[1]
    each = NUM_EXAMPLES // 4
    last = int(starts_of([Shard(path=str(shard), skip=each - 1, take=1)])[0][0])
    shard.write_bytes(shard.read_bytes()[:-9])
    message = raised(WorldError, passes_of, plan_of(*small(tmp_path / "data", *FULL)), 1)
    says(message, SHARD=shard, LAST=f"record at {last}'", NUMBER=f"record {each - 1}:", COUNT=f"expected {each}")
