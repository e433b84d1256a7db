"""Configs with a service: what a plan shows of them, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from etlrun.eject import program
from etlrun.review.difference import compare
from etlrun.system.errors import ConfigError
from tests.configs import composed, plan_of, refusal_of_plan, refusal_of_spec, spec_of

SERVICE = ("load=service", "cache=none")
FAR = ("load.service.workers=null", "load.service.address=gpu1:5050")


def test_an_exact_service_changes_no_result() -> None:
    plan, local = plan_of(*SERVICE), plan_of("cache=none")
    assert plan.fingerprint == local.fingerprint
    for stages in plan.pipelines.values():
        assert [planned.stage.path for planned in stages[-3:]] == ["load.batch", "load.service", "load.prefetch"]
    assert plan.remarks == (
        (
            "load.service: the workers' ports are without authentication; they are bound to loopback on Linux, which "
            "a run verifies, and elsewhere open to other machines."
        ),
    )
    assert spec_of(*SERVICE).has_order


def test_a_dynamic_one_changes_the_order() -> None:
    plan = plan_of(*SERVICE, "load.service.order=dynamic", "load.service.on_loss=report")
    assert plan.decisive["train/load.service.order"] == "dynamic"
    assert plan.fingerprint != plan_of("cache=none").fingerprint
    assert plan.remarks[1:] == (
        "load.service.order = dynamic: the order of the examples, and so every result, differs from run to run.",
        "load.service.on_loss = report: a pass without the examples of a lost worker is reported, and used.",
    )
    assert not plan.spec.has_order


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("load.service.workers=null", "load.service.address=[localhost:5050,localhost:5050]"),
            (
                "load.service.address: found ['localhost:5050', 'localhost:5050']; expected each dispatcher once with "
                "order=exact, which has one worker for each\n    -> name each dispatcher once"
            ),
        ),
        (
            ("load.service.workers=null",),
            (
                "load.service.workers: found null, as is load.service.address; expected a number of processes, or an "
                "address\n    -> set load.service.workers=2"
            ),
        ),
        (
            ("load.service.workers=0", "load.service.address=nowhere", "load.service.timeout_s=0.5"),
            (
                "load.service.workers: found 0; expected an integer from 1 to 256, or null\nload.service.address: "
                "found 'nowhere'; expected HOST:PORT, a list of them, or null\nload.service.timeout_s: found 0.5; "
                "expected a number of seconds, at least 1"
            ),
        ),
        (
            ("load.service.address=localhost:5050",),
            (
                "load.service.workers: found 2; expected null with load.service.address, whose workers others have "
                "started\n    -> set load.service.workers=null or load.service.address=null"
            ),
        ),
        (
            FAR,
            (
                "load.service.trusted_network: found false; expected true, since gpu1:5050 is on another machine, "
                "and the service neither encrypts nor authenticates\n    -> set load.service.trusted_network=true on "
                "a network whose machines you trust"
            ),
        ),
        (
            (
                "load.service.workers=null",
                "load.service.address=[localhost:5050,localhost:5060]",
                "load.service.order=dynamic",
            ),
            (
                "load.service.address: found ['localhost:5050', 'localhost:5060']; expected one dispatcher with "
                "order=dynamic, which has all workers\n    -> name one of them, or set load.service.order=exact"
            ),
        ),
        (
            ("load.service.on_loss=report",),
            (
                "load.service.on_loss: found report; expected fail with order=exact, which loses no example\n    -> "
                "set load.service.on_loss=fail or load.service.order=dynamic"
            ),
        ),
        (
            ("load.service.worker=3",),
            (
                "load.service.worker: found an unknown key; expected one of the keys workers, address, order, "
                "on_loss, timeout_s, trusted_network\n    -> did you mean `load.service.workers`?"
            ),
        ),
    ],
    ids=lambda of: of[0] if isinstance(of, tuple) else "",
)
def test_a_block_is_checked(overrides: tuple[str, ...], message: str) -> None:
    words = [word if word != "load.service.worker=3" else f"+{word}" for word in overrides]
    assert refusal_of_spec(*SERVICE, *words) == message


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
            ("cache=memory", "load.service.order=dynamic", "cache.at=source", "cache.codec=raw"),
            (
                "cache.name: found memory; expected disk or none with load.service, whose workers do not share the "
                "memory of the run\n    -> set cache=disk, or load=shuffled\n"
                "load.service.order: found dynamic; expected exact with a cache, of which each worker reads its own "
                "examples by their numbers\n    -> set load.service.order=exact, or cache=none\n"
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
            ("transform.decode.library=turbo",),
            (
                "transform.decode.library: found turbo; expected tensorflow with load.service, since libjpeg-turbo "
                "is called by Python, which stays in its process\n    -> set transform.decode.library=tensorflow"
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
                "extract.deterministic: found false; expected true with load.service.order=exact, since all workers "
                "count on one order\n    -> set extract.deterministic=true, or load.service.order=dynamic\n"
                "transform.deterministic: found false; expected true with load.service.order=exact, since all "
                "workers count on one order\n    -> set transform.deterministic=true, or load.service.order=dynamic\n"
                "load.shuffle_at: found before_batch; expected auto with load.service.order=exact, since each worker "
                "would transform all examples to shuffle them\n    -> set load.shuffle_at=auto"
            ),
        ),
        (
            ("load.service.order=dynamic", "trainer.checkpoint_every_steps=5"),
            (
                "trainer.checkpoint_every_steps: found 5; expected null with load.service.order=dynamic, since a "
                "resumed pass then has another order\n    -> set load.service.order=exact, or "
                "trainer.checkpoint_every_steps=null"
            ),
        ),
    ],
    ids=lambda of: of[0] if isinstance(of, tuple) else "",
)
def test_what_other_processes_can_not_do_is_refused(overrides: tuple[str, ...], message: str) -> None:
    without = SERVICE[: 1 if overrides[0].startswith("cache=") else 2]
    assert refusal_of_plan(*without, *overrides) == message


def test_a_cache_on_disk_is_read_by_the_workers() -> None:
    plan = plan_of("load=service", "cache=disk", "trainer.epochs=1")
    assert plan.fingerprint == plan_of("cache=none", "trainer.epochs=1").fingerprint
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
        for old, new in (
            (("cache=none",), SERVICE),
            (SERVICE, (*SERVICE, "load.service.workers=4", "load.service.order=dynamic")),
            (SERVICE, (*SERVICE, "load.service.order=dynamic", "load.service.on_loss=report")),
            (SERVICE, ("load=service", "cache=disk")),
        )
    ]
    assert [one.headline for one in told] == [
        "changes only the speed",
        "changes the order and the speed",
        "changes the data, from load.service on, and the order",
        "changes only the speed",
    ]
    assert [(of.path, of.old, of.new, of.kind) for of in told[0].differences] == [
        ("load.service.workers", "null", "2", "speed")
    ]


def test_there_is_no_program_with_a_service() -> None:
    with pytest.raises(ConfigError) as caught:
        program.ejected(plan_of(*SERVICE), [], {})
    assert str(caught.value) == (
        "load.service: found a service, whose servers a program would have to start and to watch; expected null "
        "in a standalone program\n    -> set load=shuffled, which reads the same examples in the same order as "
        "load.service.order=exact"
    )
