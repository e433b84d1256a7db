"""Passes that workers of a service compute: those of a local run, whatever ends."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from etlrun.cluster.service import is_gone, refused
from etlrun.graph.build import require_portable
from etlrun.sweep import engine
from etlrun.system.errors import ConfigError, WorldError
from tests.configs import TENSORFLOW, raised
from tests.forked import forked
from tests.golden import Says
from tests.pictures import damaged, feature_of, truncate, with_feature
from tests.pipelines import batches_of, training_pipeline
from tests.runs import complete_here, emulated, run_here
from tests.service import BATCHES, TRUSTED, Cluster, at, clusters, killed, planned, served

pytestmark = pytest.mark.slow

RANDOM = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
FILES = "extract.shuffle_files=true"
SEEN = ("digest", "validation_digest")


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """All processes of tests are forked from one server."""
    engine._context()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    with clusters(tmp_path_factory.mktemp("servers"), 2) as found:
        yield found


def of_local(tiny: Path, *overrides: str) -> list[Any]:
    """Three passes of a run that has no service."""
    with training_pipeline(planned(tiny, *overrides)) as local:
        return [batches_of(local.dataset) for _ in range(3)]


@pytest.mark.parametrize(
    "overrides",
    [
        ("load.batch_size=5", RANDOM, FILES),
        ("load.batch_size=5", "load.drop_remainder=true", "load.mixup_alpha=0.2"),
        ("load.batch_size=5", "load.shuffle_buffer=0", "extract=sequential"),
    ],
    ids=" ".join,
)
def test_passes_are_those_of_a_run_without_a_service(
    overrides: tuple[str, ...], tiny: Path, two: list[Cluster]
) -> None:
    expected = of_local(tiny, *overrides)
    plan = planned(tiny, *at(two), *overrides)
    with served(plan) as pipeline:
        assert [batches_of(pipeline.dataset) for _ in range(2)] == expected[:2]
    with served(plan) as pipeline:
        pipeline.skip(1, 4)
        count = len(expected[0])
        assert batches_of(islice(pipeline.endless(), 2 * count - 4)) == [*expected[1][4:], *expected[2]]


def test_a_worker_that_is_started_again_goes_on_where_it_was(tiny: Path, two: list[Cluster]) -> None:
    expected, *_ = of_local(tiny, RANDOM)
    with served(planned(tiny, *at(two), RANDOM)) as pipeline:
        batches = iter(pipeline.dataset)
        found = batches_of(islice(batches, 5))
        for cluster in two:
            killed(cluster.worker)
            cluster.join()
        assert [*found, *batches_of(batches)] == expected
    assert len(expected) == BATCHES


def test_a_worker_that_does_not_see_the_files_says_so(tiny: Path, tmp_path: Path, two: list[Cluster]) -> None:
    shutil.copytree(tiny, tmp_path / "here")
    with served(planned(tmp_path / "here", *at(two))) as pipeline:
        (tmp_path / "here").rename(tmp_path / "elsewhere")
        with pytest.raises(WorldError) as caught:
            list(pipeline.dataset)
    says_which_file(caught.value, tmp_path / "here")


def says_which_file(error: Exception, folder: Path) -> None:
    found, _, rest = str(error).partition("; expected ")
    assert found.startswith(f"load.service.address: found a worker that can't read a file: {folder}")
    assert found.endswith("No such file or directory")
    assert rest == (
        "workers that have the files of the dataset at the same paths\n    -> mount the folder of the dataset on the "
        "machines of the workers, at the path that it has here"
    )


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (with_feature("image", feature_of(b"no picture")), "record 5: found an image that can't be decoded: "),
        (truncate, "record "),
    ],
    ids=["image", "file"],
)
def test_a_record_that_a_worker_can_not_use_is_named(
    damage: Callable[[Path], None], found: str, tiny: Path, tmp_path: Path, two: list[Cluster]
) -> None:
    shard = damaged(tiny, tmp_path / "data", damage)
    words = [*at(two), "cache=none", "dataset.eval_split=null"]
    status, summary = run_here(tmp_path / "run", emulated(tmp_path / "data", *words))
    assert (status, summary["status"]) == (1, "failed")
    assert summary["error"].startswith(f"{shard}, {found}")
    ways = "or set dataset.on_corrupt=skip and load=shuffled to skip and count such records; etlrun doctor finds all"
    assert summary["error"].endswith(ways)


def test_batches_of_another_plan_are_refused(
    tiny: Path, two: list[Cluster], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """As when two workers share a port, and the system deals their clients to either of them."""
    with served(planned(tiny, *at(two[:1]))) as pipeline:
        distributed = pipeline._distributed
        other = planned(tiny, *at(two[:1]), "trainer.seed=7").fingerprint.encode()

        def of_another(number: int, lane: int, done: int) -> tf.data.Dataset:
            own, pipeline.fingerprint = pipeline.fingerprint, other
            try:
                return distributed(number, lane, done)
            finally:
                pipeline.fingerprint = own

        monkeypatch.setattr(pipeline, "_distributed", of_another)
        with pytest.raises(WorldError) as caught:
            list(pipeline.dataset)
    says(str(caught.value), ADDRESS=two[0].address)


def test_two_workers_do_not_share_a_port(two: list[Cluster], tmp_path: Path, says: Says) -> None:
    (tmp_path / "cwd").mkdir()
    port = two[0].worker_port
    words = ["service", "worker", "--dispatcher", two[0].address, "--port", str(port), TRUSTED]
    second = forked(words, tmp_path / "cwd")
    _, errors = second.communicate(60)
    assert second.returncode == 1
    says(errors, PORT=port)


def test_a_pass_that_servers_do_not_know_is_no_missing_file(says: Says) -> None:
    error = refused(tf.errors.NotFoundError(None, None, "Dataset id 1000 not found"))
    says(str(error))


def test_a_file_whose_path_has_the_words_of_a_pass_is_a_file() -> None:
    error = tf.errors.NotFoundError(None, None, "/data/multitask/a.tfrecord; No such file or directory")
    assert not is_gone(error)
    says_which_file(refused(error), Path("/data/multitask"))


def test_a_step_that_calls_python_is_refused(says: Says) -> None:
    def apply(number: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(abs, [number], tf.int64)

    dataset = tf.data.Dataset.range(3).map(tf.autograph.experimental.do_not_convert(apply))
    says(raised(ConfigError, require_portable, dataset))


def test_a_pass_does_not_wait_without_end_for_a_worker_that_stands_still(
    tiny: Path, two: list[Cluster], says: Says
) -> None:
    with served(planned(tiny, *at(two), "load.service.timeout_s=3")) as pipeline:
        batches = iter(pipeline.dataset)
        next(batches)
        os.kill(two[1].worker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(WorldError) as caught:
                list(batches)
        finally:
            os.kill(two[1].worker.pid, signal.SIGCONT)
    says(str(caught.value), ADDRESS=two[1].address)


def test_a_run_sees_what_a_run_without_a_service_sees(tiny: Path, tmp_path: Path, two: list[Cluster]) -> None:
    words = ["cache=none", "load.batch_size=1", "trainer.epochs=2", "measure.digest=true", TENSORFLOW]
    _, local = run_here(tmp_path / "local", emulated(tiny, *words))
    summary = complete_here(tmp_path / "served", emulated(tiny, *words, *at(two)))
    assert [[epoch[key] for key in SEEN] for epoch in summary["epochs"]] == [
        [epoch[key] for key in SEEN] for epoch in local["epochs"]
    ]
    assert summary["plan_fingerprint"] == local["plan_fingerprint"]
    assert summary["autotune"] == {}


def test_a_drained_service_is_what_limits_the_run(tiny: Path, tmp_path: Path, two: list[Cluster], says: Says) -> None:
    words = ["load.batch_size=1", "cache=none", "trainer=drain", "trainer.epochs=1", "trainer.seconds=null"]
    overrides = [word for word in emulated(tiny, *at(two), *words) if not word.startswith(("model", "load.drop"))]
    summary = complete_here(tmp_path / "run", overrides)
    assert summary["verdict"]["kind"] == "input"
    assert summary["verdict"]["stage"] == "load.service"
    says(summary["verdict"]["advice"])
