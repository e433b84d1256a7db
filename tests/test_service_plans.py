"""Configs with a service: what a plan shows of them, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from etlrun.eject import program
from etlrun.review.difference import compare
from etlrun.system.errors import ConfigError
from tests.configs import TENSORFLOW, composed, plan_of, refusal_of_plan, refusal_of_spec, spec_of

SERVED = ("load=service", "load.service.address=cpu1:5050", "load.service.trusted_network=true")
SERVICE = (*SERVED, "cache=none")


def test_a_service_changes_no_result() -> None:
    plan, local = plan_of(*SERVICE), plan_of("cache=none", TENSORFLOW)
    assert plan.fingerprint == local.fingerprint
    for stages in plan.pipelines.values():
        assert [planned.stage.path for planned in stages[-3:]] == ["load.batch", "load.service", "load.prefetch"]
    assert plan.remarks == (
        ("load.service: tf.data's service listens on all interfaces of its machines: let a firewall limit it."),
        (
            "transform.decode.library = turbo: with load.service TensorFlow decodes and resizes, since libjpeg-turbo "
            "is called by Python, which stays in its process."
        ),
    )
    assert spec_of(*SERVICE).has_order


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("load.service.address=[localhost:5050,localhost:5050]",),
            (
                "load.service.address: found ['localhost:5050', 'localhost:5050']; expected each dispatcher once, "
                "which has one worker for each\n    -> name each dispatcher once"
            ),
        ),
        (
            ("load.service.address=null", "load.service.trusted_network=false"),
            (
                "load.service.address: found null; expected HOST:PORT of a dispatcher, or a list of them\n    -> start "
                "`etlrun service dispatcher` and a worker, and set load.service.address=localhost:5050\n"
                "load.service.trusted_network: found false; expected true, since tf.data's service listens on all "
                "interfaces, and neither encrypts nor authenticates\n    -> set load.service.trusted_network=true "
                "where a firewall lets only machines that you trust through"
            ),
        ),
        (
            ("load.service.address=nowhere", "load.service.timeout_s=0.5"),
            (
                "load.service.address: found 'nowhere'; expected HOST:PORT, or a list of them\n"
                "load.service.timeout_s: found 0.5; expected a number from 1"
            ),
        ),
        (
            ("+load.service.adress=a:1",),
            (
                "load.service.adress: found an unknown key; expected one of the keys address, timeout_s, "
                "trusted_network\n    -> did you mean `load.service.address`?"
            ),
        ),
    ],
    ids=lambda of: of[0] if isinstance(of, tuple) else "",
)
def test_a_block_is_checked(overrides: tuple[str, ...], message: str) -> None:
    assert refusal_of_spec(*SERVICE, *overrides) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("cache=memory",),
            (
                "cache.name: found memory; expected disk or none with load.service, whose workers do not share the "
                "memory of the run\n    -> set cache=disk, or load=shuffled"
            ),
        ),
        (
            ("cache=disk", "cache.at=source", "cache.codec=raw"),
            (
                "cache.at: found source, with encoded image, label; expected examples of one size with load.service, "
                "whose workers find them by it\n    -> set cache.at=resize, or load=shuffled"
            ),
        ),
        (
            ("cache=disk", "cache.codec=jpeg90", "cache.at=resize", "transform.resize.dtype=uint8"),
            (
                "cache.codec: found jpeg90; expected raw with load.service, whose workers find an example by the size "
                "that all of them have\n    -> set cache.codec=raw, or load=shuffled"
            ),
        ),
        (
            ("cache=disk", "cache.at=features", "model=mobilenet_v2"),
            (
                "cache.at: found features; expected images with load.service, since features leave its workers "
                "nothing to transform\n    -> set load=shuffled, or cache.at=transformed"
            ),
        ),
        (
            ("dataset.on_corrupt=skip",),
            (
                "dataset.on_corrupt: found skip; expected raise with load.service, since the records that a worker "
                "skips could not be counted\n    -> repair the data and set dataset.on_corrupt=raise, or set "
                "load=shuffled"
            ),
        ),
        (
            ("load.shuffle=full", "extract=sequential"),
            (
                "load.shuffle: found full; expected buffer with load.service, since reading by number is Python, "
                "which stays in its process\n    -> set load.shuffle=buffer, or load=shuffled"
            ),
        ),
        (
            ("transform.decode.fast=true",),
            (
                "transform.decode.fast: found true; expected false with load.service, since libjpeg-turbo is called "
                "by Python, which stays in its process\n    -> set transform.decode.fast=false, or load=shuffled"
            ),
        ),
        (
            ("extract=tfds",),
            (
                "extract.name: found tfds; expected sequential or interleave with load.service, whose records are "
                "dealt to the workers as they are read\n    -> set extract=interleave"
            ),
        ),
        (
            ("extract.deterministic=false", "transform.deterministic=false", "load.shuffle_at=before_batch"),
            (
                "extract.deterministic: found false; expected true with load.service, since all workers count on "
                "one order\n    -> set extract.deterministic=true, or load=shuffled\n"
                "transform.deterministic: found false; expected true with load.service, since all "
                "workers count on one order\n    -> set transform.deterministic=true, or load=shuffled\n"
                "load.shuffle_at: found before_batch; expected auto with load.service, since each worker "
                "would transform all examples to shuffle them\n    -> set load.shuffle_at=auto"
            ),
        ),
    ],
    ids=lambda of: of[0] if isinstance(of, tuple) else "",
)
def test_what_other_processes_can_not_do_is_refused(overrides: tuple[str, ...], message: str) -> None:
    without = SERVED if overrides[0].startswith("cache=") else SERVICE
    assert refusal_of_plan(*without, *overrides) == message


def test_a_cache_on_disk_is_read_by_the_workers() -> None:
    plan = plan_of(*SERVED, "cache=disk", "trainer.epochs=1")
    assert plan.fingerprint == plan_of("cache=none", "trainer.epochs=1", TENSORFLOW).fingerprint
    assert [planned.stage.path for planned in plan.train] == [
        *("extract.interleave", "transform.map", "cache.disk", "load.shuffle"),
        *("load.batch", "load.service", "load.prefetch"),
    ]
    assert [note for note in plan.remarks if note.startswith("cache.disk")] == [
        (
            "cache.disk: the run fills the cache, or compares it with its checksums, before the first pass; workers "
            "read it at the same path."
        ),
        "cache.disk benefits only other runs: a single epoch waits for all of it, and reads it once.",
    ]


def test_a_diff_tells_the_kinds() -> None:
    told = [
        compare(plan_of(*old), plan_of(*new), (composed(*old), composed(*new)))
        for old, new in ((("cache=none", TENSORFLOW), (*SERVICE, TENSORFLOW)), (SERVICE, (*SERVED, "cache=disk")))
    ]
    assert [one.headline for one in told] == ["changes only the speed", "changes only the speed"]
    assert [(of.path, of.old, of.new, of.kind) for of in told[0].differences] == [
        ("load.service.address", "null", "cpu1:5050", "speed"),
        ("load.service.trusted_network", "false", "true", "speed"),
    ]


def test_there_is_no_program_with_a_service() -> None:
    with pytest.raises(ConfigError) as caught:
        program.ejected(plan_of(*SERVICE), [], {})
    assert str(caught.value) == (
        "load.service: found a service, whose servers a program would have to find; expected null in a standalone "
        "program\n    -> set load=shuffled, which reads the same examples in the same order"
    )
