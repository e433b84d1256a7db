"""The rules between the other processes of a run and its parts."""

from typing import Any

from etlrun.planning.plan import is_fast
from etlrun.stages.rows import Rows
from etlrun.stages.rule import Need, Rules, When


def _shares(s: Any) -> Any:
    """Return the number of devices that share a batch."""
    return s.hosts * (1 if s.training.devices == "all" else s.training.devices)


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
    When("{trainer.hosts}", lambda s: s.hosts > 1, ("trainer.hosts=1",)): (
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
        Need("trainer.jit_compile=auto or true", "since hosts exchange gradients inside a compiled step"),
    ),
    When("load.service", lambda s: s.load.service is not None, ("load.service=null",)): (
        Need("dataset.on_corrupt=raise", "since the records that a worker skips could not be counted"),
        Need("load.shuffle=buffer", "since reading by number is Python, which stays in its process"),
        Need(
            "transform.decode.fast=false",
            "since libjpeg-turbo is called by Python",
            met=lambda s: not (is_fast(s.transform) or is_fast(s.eval_transform)),
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
