"""What a plan knows of the other processes of a run, and the rules between them and its parts."""

from collections.abc import Iterator
from typing import Any

from etlrun.stages.image import Decode
from etlrun.stages.load import Load, Service
from etlrun.stages.rows import Rows
from etlrun.stages.rule import Need, Rules, When
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.values import frozen


@frozen
class Cluster:
    """The other processes of a run.

    Attributes:
        hosts: Number of hosts that read equal parts of each batch, with this one.
        service: tf.data's service, whose workers read and transform the examples; None without one.
    """

    hosts: int
    service: Service | None

    @property
    def is_served(self) -> bool:
        """Whether workers read the examples: in the order of the plan, with TensorFlow's operations alone."""
        return self.service is not None

    @property
    def stages(self) -> tuple[Service, ...]:
        """Stages of a pipeline whose batches others make."""
        return () if self.service is None else (self.service,)

    def notes(self, load: Load) -> Iterator[str]:
        """Yield the notes on a run."""
        if self.is_served:
            yield "load.service: tf.data's service listens on all interfaces of its machines: let a firewall limit it."
        if self.hosts > 1:
            yield (
                f"trainer.hosts = {self.hosts}: each host reads its own part of the examples, and makes "
                f"{load.batch_size // self.hosts} of the {load.batch_size} of a batch."
            )

    def require_one_host(self, what: str) -> None:
        """Raise `ConfigError` if the run trains on several hosts, as `what` does not."""
        if self.hosts > 1:
            key = Trainer.key("hosts")
            raise ConfigError([Fault(key, str(self.hosts), f"1, since {what}", f"add {key}=1", is_rule=True)])


def _shares(s: Any) -> Any:
    """Return the number of devices that share a batch."""
    return s.cluster.hosts * (1 if s.training.devices == "all" else s.training.devices)


SHARED = (
    Need(
        "load.boundaries=[]",
        "since batches of buckets have no equal shares",
        met=lambda s: not s.load.boundaries or not isinstance(s.dataset, Rows),
    ),
    Need("load.drop_remainder=true", "since a smaller batch may have no equal shares"),
    Need(
        lambda s: f"load.batch_size=a multiple of {_shares(s)}",
        "since all have equal shares",
        met=lambda s: s.load.batch_size % _shares(s) == 0,
        by=lambda s: (f"load.batch_size={-(-s.load.batch_size // _shares(s)) * _shares(s)}",),
    ),
)
"""What a batch needs that several devices share, on one host or on several."""
BY_RECORDS = "extract=interleave or sequential"
RULES: Rules = {
    When("{trainer.hosts}", lambda s: s.cluster.hosts > 1, ("trainer.hosts=1",)): (
        *SHARED,
        Need(
            "cache=memory or none",
            "whose hosts keep their own parts of a split",
            met=lambda s: s.cache.keeps_features or not s.cache.outlives_run or s.given.sequences,
        ),
        Need("load.service=null", "whose hosts read by themselves"),
        Need(BY_RECORDS, "whose hosts read a part of a split by its records"),
        Need("dataset.on_corrupt=raise", "since hosts that skip records would take different numbers of steps"),
        Need("load.sample=all", "since a host has not all examples of a class"),
        Need("trainer.jit_compile=auto or true", "whose steps meet inside"),
    ),
    When("load.service", lambda s: s.cluster.is_served, ("load.service=null",)): (
        Need("dataset.on_corrupt=raise", "since the records that a worker skips could not be counted"),
        Need("load.shuffle=buffer", "since reading by number is Python, which stays in its process"),
        Need(
            "transform.decode.fast=false",
            "since libjpeg-turbo is called by Python",
            met=lambda s: (
                not any(
                    isinstance(step, Decode) and step.fast for step in (*s.transform.steps, *s.eval_transform.steps)
                )
            ),
        ),
        Need(BY_RECORDS, "whose records are dealt to the workers as they are read"),
        Need("cache=none", "whose workers read the examples in each pass", met=lambda s: not s.cache.keeps),
        Need("extract.deterministic=true", "since all workers count on one order"),
        Need("transform.deterministic=true", "since all workers count on one order"),
        Need(
            "load.shuffle_at=auto",
            "since each worker would transform all examples to shuffle them",
            met=lambda s: not s.load.shuffles or s.load.is_by_number or s.load.shuffle_at != "before_batch",
        ),
    ),
}
