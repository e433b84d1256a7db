"""Verdicts of runs whose shards are fetched."""

import dataclasses

from etlrun.measure.meter import Loop
from etlrun.measure.verdict import judge_alone
from etlrun.record.summary import Verdict
from etlrun.remote.copies import Traffic
from tests.judged import approx, costs, loop, side, verdict


def fetching(of: Loop, waited_s: float, first_s: float = 0.0) -> Loop:
    """A loop whose reader waited so long for shards, in the end and before the first batch; they came at 40 MB/s."""
    traffic = Traffic(bytes=200_000_000, requests=8, busy_s=5.0, waited_s=waited_s)
    return dataclasses.replace(of, traffic=traffic, first_fetch_s=first_s)


def test_shards_that_arrive_too_slowly_limit_a_run_whatever_other_stages_take() -> None:
    slow = side(fetching(loop(0.1), 6.0), of=costs(map=80.0), example_bytes=1_000_000.0)
    assert verdict(slow) == Verdict(
        kind="input",
        stage="extract.fetch",
        pipeline="train",
        max_gain=approx(2.0),
        train_max_gain=approx(2.0),
        because="10.0 s of 20.0 s were spent waiting for data; shards arrive at 40.0 MB/s, and the model consumes "
        "100.0 MB/s",
        arriving_bytes_per_s=40e6,
        consumed_bytes_per_s=approx(100e6),
    )
    assert verdict(dataclasses.replace(slow, loops=(dataclasses.replace(slow.loops[0], costs=None),))) == verdict(slow)
    assert judge_alone(slow, 50.0).because == (
        "the pipeline alone delivers 50 examples/s, limited by extract.fetch: shards arrive at 40.0 MB/s"
    )


def test_one_long_wait_for_a_shard_is_no_accident() -> None:
    long = fetching(loop(waits_s=[5.0] + [0.0] * 99), 6.0)
    assert verdict(side(long, example_bytes=1_000_000.0)).stage == "extract.fetch"


def test_shards_that_are_there_in_time_do_not_limit_a_run() -> None:
    """The reader of shards has waited for the first one, and hardly since."""
    in_time = side(fetching(loop(0.1), 1.5, 1.0), of=costs(map=80.0), example_bytes=1_000_000.0)
    assert verdict(in_time).stage == "transform.map"
    assert judge_alone(in_time, 50.0).because == "the pipeline alone delivers 50 examples/s, limited by transform.map"


def test_the_first_shards_of_passes_are_named_where_those_behind_come_in_time() -> None:
    found = verdict(side(fetching(loop(fill_s=5.0), 4.0, 4.0), of=costs(map=20.0), example_bytes=100_000.0))
    assert (found.stage, found.arriving_bytes_per_s) == ("extract.fetch", None)
    assert found.because == (
        "5.00 s of 15.0 s were spent waiting for data; each pass first waits for shards, 4.00 s in all"
    )
    assert verdict(side(fetching(loop(fill_s=5.0), 2.0, 2.0), of=costs(map=20.0))).stage == "load.shuffle"
