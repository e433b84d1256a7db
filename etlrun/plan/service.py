"""Rules of a run whose input comes from a service of tf.data, and notes on it."""

from __future__ import annotations

from collections.abc import Iterator

from etlrun.plan.spec import RunSpec
from etlrun.plan.training import fault, unordered
from etlrun.stages.image import Decode
from etlrun.stages.service import Service
from etlrun.system.errors import ConfigError, Fault


def service_rules(spec: RunSpec, service: Service) -> Iterator[Fault]:
    """Yield the faults of what can't be done in other processes, or not in the order that the service promises."""
    load = spec.load
    if spec.cache.keeps:
        expected = "none with load.service, whose workers share no cache"
        yield fault("cache.name", spec.cache.path.removeprefix("cache."), expected, "set cache=none, or load=shuffled")
    if spec.dataset.on_corrupt == "skip":
        expected = "raise with load.service, since the records that a worker skips could not be counted"
        remedy = "repair the data and set dataset.on_corrupt=raise, or set load=shuffled"
        yield fault(spec.dataset.key("on_corrupt"), "skip", expected, remedy)
    if load.is_by_number:
        expected = "buffer with load.service, since reading by number is Python, which stays in its process"
        yield fault(load.key("shuffle"), "full", expected, "set load.shuffle=buffer, or load=shuffled")
    if any(step.uses_turbo for steps in (spec.transform.steps, spec.eval_transform.steps) for step in steps):
        expected = "tensorflow with load.service, since libjpeg-turbo is called by Python, which stays in its process"
        yield fault(Decode.key("library"), "turbo", expected, "set transform.decode.library=tensorflow")
    if spec.extract.parses:
        expected = "sequential or interleave with load.service, whose records are dealt to the workers as they are read"
        yield fault("extract.name", spec.extract.path.removeprefix("extract."), expected, "set extract=interleave")
    if service.is_exact:
        yield from _exact(spec)


def _exact(spec: RunSpec) -> Iterator[Fault]:
    """Yield the faults of values with which the workers would not see the same order."""
    order = Service.key("order")
    for key in unordered(spec):
        expected = f"true with {order}=exact, since all workers count on one order"
        yield fault(key, "false", expected, f"set {key}=true, or {order}=dynamic")
    if spec.load.shuffles and not spec.load.is_by_number and spec.load.shuffle_at == "before_batch":
        expected = f"auto with {order}=exact, since each worker would transform all examples to shuffle them"
        yield fault(spec.load.key("shuffle_at"), "before_batch", expected, "set load.shuffle_at=auto")


def require_no_service(spec: RunSpec) -> None:
    """Raise `ConfigError` if the input of a run comes from a service, which a standalone program does not start."""
    if spec.load.service is not None:
        found = "a service, whose servers a program would have to start and to watch"
        remedy = "set load=shuffled, which reads the same examples in the same order as load.service.order=exact"
        raise ConfigError([fault(Service.path, found, "null in a standalone program", remedy)])


def service_notes(service: Service) -> Iterator[str]:
    """Yield the notes on a run with a service, one sentence each."""
    if service.workers is not None:
        yield (
            f"{Service.path}: the workers' ports are without authentication; they are bound to loopback on Linux, "
            "which a run verifies, and elsewhere open to other machines."
        )
    if not service.is_exact:
        differs = "the order of the examples, and so every result, differs from run to run"
        yield f"{Service.key('order')} = dynamic: {differs}."
    if service.on_loss == "report":
        yield f"{Service.key('on_loss')} = report: a pass without the examples of a lost worker is reported, and used."
