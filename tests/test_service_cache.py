"""Caches on disk that the workers of a service read: the passes of a run without a service, whatever ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from etlrun.cache import parts
from etlrun.sweep import engine
from etlrun.system.errors import WorldError
from tests.configs import TENSORFLOW
from tests.networks import trained_here
from tests.pipelines import training_pipeline
from tests.runs import events_of, losses_of
from tests.service import BATCHES, Cluster, as_bytes, at, clusters, killed, planned, served
from tests.test_cache_store import flip
from tests.test_caches import digests, on_disk, part_of, passes

pytestmark = pytest.mark.slow

FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
AT_RESIZE = (FLIPPED, "cache.at=resize")


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    engine._context()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    with clusters(tmp_path_factory.mktemp("servers"), 2) as found:
        yield found


def of_local(tiny: Path, *overrides: str) -> list[Any]:
    """Three passes of a run that has neither a service nor a cache."""
    with training_pipeline(planned(tiny, *overrides)) as local:
        return [as_bytes(local.dataset) for _ in range(3)]


@pytest.mark.parametrize(
    "overrides",
    [
        (FLIPPED, "cache.at=resize", "load.mixup_alpha=0.2"),
        ("cache.at=transformed", "transform.resize.dtype=uint8", "load.drop_remainder=true"),
        ("cache.at=transformed", "load.shuffle_buffer=0", "extract=sequential"),
        (FLIPPED, "cache.at=resize", "load.shuffle_at=before_batch", "transform.parse_batch=4"),
    ],
    ids=" ".join,
)
def test_passes_are_those_of_a_run_without_servers_and_without_a_cache(
    overrides: tuple[str, ...], tiny: Path, tmp_path: Path, two: list[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 40_000)
    words = ("load.batch_size=5", *overrides)
    expected = of_local(tiny, *(word for word in words if word != "load.shuffle_at=before_batch"))
    plan = planned(tiny, *at(two), *words, *on_disk(tmp_path))
    with served(plan) as pipeline:
        assert [as_bytes(pipeline.dataset) for _ in range(2)] == expected[:2]
        assert pipeline.keeper is not None
        assert pipeline.keeper.passes == ["filled", "read", "read"]
        assert pipeline.filling_s > 0
        assert len(pipeline.keeper.parts) > 2
    with served(plan) as pipeline:
        pipeline.skip_passes(1)
        pipeline.skip_batches(4)
        count = len(expected[0])
        assert as_bytes(islice(pipeline.endless(), 2 * count - 4)) == [*expected[1][4:], *expected[2]]
        assert pipeline.keeper is not None
        assert set(pipeline.keeper.passes) == {"read"}


def test_a_worker_that_is_started_again_goes_on_with_the_cache_where_it_was(
    tiny: Path, tmp_path: Path, two: list[Cluster]
) -> None:
    expected = of_local(tiny, FLIPPED)
    with served(planned(tiny, *at(two), *AT_RESIZE, *on_disk(tmp_path))) as pipeline:
        batches = iter(pipeline.dataset)
        found = as_bytes(islice(batches, 5))
        killed(two[0].worker)
        two[0].join()
        assert [*found, *as_bytes(batches)] == expected[0]


def test_while_another_run_fills_the_cache_the_workers_read_the_files(
    tiny: Path, tmp_path: Path, two: list[Cluster]
) -> None:
    words = (*AT_RESIZE, "extract.shuffle_files=true")
    plan, heard = planned(tiny, *at(two), *words, *on_disk(tmp_path)), list[str]()
    with training_pipeline(planned(tiny, *words, *on_disk(tmp_path / "others"))) as local:
        expected = [as_bytes(local.dataset) for _ in range(3)]
    with training_pipeline(planned(tiny, *words, *on_disk(tmp_path))) as other, served(plan, heard) as pipeline:
        assert [as_bytes(pipeline.dataset) for _ in range(2)] == expected[:2]
        assert as_bytes(other.dataset) == expected[0]
        assert as_bytes(pipeline.dataset) == expected[2]
        assert pipeline.keeper is not None
        assert pipeline.keeper.passes == ["uncached", "uncached", "read"]
        key = pipeline.keeper.key
    assert heard == [f"this run is filling the cache {key}: this pass runs without it"] * 2


def test_runs_with_a_service_and_a_cache_learn_the_same(tiny: Path, tmp_path: Path, two: list[Cluster]) -> None:
    words = ("trainer.epochs=2", "trainer.learning_rate=0.1", "measure.digest=true", TENSORFLOW, *AT_RESIZE)
    _, none = trained_here(tmp_path / "none", tiny, *words[:4], FLIPPED, "cache=none")
    _, local = trained_here(tmp_path / "local", tiny, *words, *on_disk(tmp_path))
    for name, folder, own in (("filled", tmp_path / "other", "filled"), ("read", tmp_path, "read")):
        status, summary = trained_here(tmp_path / name, tiny, *words, *on_disk(folder), *at(two))
        assert status == 0
        assert summary["plan_fingerprint"] == local["plan_fingerprint"]
        assert (losses_of(summary), digests(summary)) == (losses_of(none), digests(none))
        counted = {"filled": ["filled", "read", "read"], "read": ["read", "read"]}[own]
        assert passes(summary) == {"train": counted, "validation": counted}
        assert [(pipeline["key"], pipeline["held_bytes"]) for pipeline in summary["cache"]["pipelines"].values()] == [
            (pipeline["key"], pipeline["held_bytes"]) for pipeline in local["cache"]["pipelines"].values()
        ]


def test_a_flipped_byte_is_found_before_the_first_pass(tiny: Path, tmp_path: Path, two: list[Cluster]) -> None:
    words = (*AT_RESIZE, *on_disk(tmp_path), *at(two), "measure.digest=true")
    _, sound = trained_here(tmp_path / "sound", tiny, *words)
    part = part_of(tmp_path / "caches")
    flipped(part)
    status, summary = trained_here(tmp_path / "flipped", tiny, *words)
    assert status == 0
    assert digests(summary) == digests(sound)
    assert passes(summary) == {"train": ["filled", "read"], "validation": ["read"]}
    key = summary["cache"]["pipelines"]["train"]["key"]
    told = [event["text"] for event in events_of(tmp_path / "flipped") if event["event"] == "cache"]
    assert len(told) == 1
    assert told[0].startswith(
        f"the cache {key} was broken and will be rebuilt: {part}: found example 12 with checksum "
    )


def flipped(part: Path) -> tuple[str, str]:
    flip(part, 40_000)
    return "example 12 with checksum ", ""


def truncated(part: Path) -> tuple[str, str]:
    size = part.stat().st_size
    os.truncate(part, 20_000)
    return "20000 bytes", f"{size} bytes"


def deleted(part: Path) -> tuple[str, str]:
    size = part.stat().st_size
    part.unlink()
    return "no file", f"{size} bytes"


@pytest.mark.parametrize("spoiled", [flipped, truncated, deleted], ids=lambda of: of.__name__)
def test_a_cache_that_changes_during_a_run_ends_it(
    spoiled: Callable[[Path], tuple[str, str]], tiny: Path, tmp_path: Path, two: list[Cluster]
) -> None:
    with served(planned(tiny, *at(two), *AT_RESIZE, *on_disk(tmp_path))) as pipeline:
        assert len(as_bytes(pipeline.dataset)) == BATCHES
        part = part_of(tmp_path / "caches")
        found, expected = spoiled(part)
        with pytest.raises(WorldError) as caught:
            list(pipeline.dataset)
        key = pipeline.keeper.key if pipeline.keeper else ""
    said, _, rest = str(caught.value).partition("; expected ")
    assert said.startswith(f"{part}: found {found}")
    assert rest.startswith(expected)
    assert rest.endswith("\n    -> resume the run, or start it again: the cache has been removed and will be rebuilt")
    assert not (tmp_path / "caches" / key).exists()
