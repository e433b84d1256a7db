"""Configs with a service: what a plan shows of them, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from etlrun.eject import program
from etlrun.review.difference import compare
from etlrun.system.errors import ConfigError
from tests.configs import TENSORFLOW, composed, plan_of, spec_of

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
