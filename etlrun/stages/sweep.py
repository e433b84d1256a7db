"""The `sweep` and `tune` groups, which are no part of a run's config."""

from typing import Annotated, Literal

from pydantic import Field

from etlrun.stages.base import Expected, Positive, PositiveNumber, Seed, Stage, Text
from etlrun.stages.flow import Faults
from etlrun.stages.paths import OptionalPath
from etlrun.system.values import frozen

Objective = Literal["throughput", "utilisation", "peak_memory"]
_Flag = Annotated[bool, Expected("true or false")]
FEWEST_REPEATS = 3
"""Minimum number of repeats with which configs are compared, and the baseline runs in pairs."""


@frozen
class Sweep(Stage):
    """How the jobs of a sweep are made, ordered and run.

    Attributes:
        repeats: Runs of each config. With 3 or more, configs are compared, and the first one runs twice as often: its
            pairs show the noise of the machine.
        seed: Seed of the order in which repeated runs are shuffled.
        vary_seed: Whether each round trains with its own seed, the config's plus the round, so that accuracies and
            losses are compared, too.
        resume: Folder of a sweep to resume; null for a new one.
        on_error: Whether the other jobs run after one has failed.
        timeout_s: Seconds after which a job fails; null for no limit.
        max_jobs_in_flight: Jobs that run at once. Timings need an otherwise idle machine.
        unfit: Combinations of values that are valid by themselves and don't fit together: `skip` skips them and
            reports the rule that each breaks; `refuse` refuses the sweep. A search always refuses them.
        exclude: Rules such as `cache!=disk cache.dir!=null`: combinations for which all terms are true are skipped.
        zip: Lists of keys whose values are paired, the first with the first.
        objectives: Results of each job for a search (`hydra/sweeper=optuna`), in the order of its directions.
    """

    path = "sweep"

    repeats: Annotated[int, Field(ge=1, le=1_000)]
    seed: Seed
    vary_seed: _Flag
    resume: OptionalPath
    on_error: Annotated[Literal["continue", "stop"], Expected("continue or stop")]
    timeout_s: Annotated[PositiveNumber | None, Expected("a positive number of seconds, or null")]
    max_jobs_in_flight: Positive
    unfit: Annotated[Literal["skip", "refuse"], Expected("skip or refuse")]
    exclude: Annotated[tuple[Text, ...], Expected("a list of rules, for example ['cache!=disk cache.dir!=null']")]
    zip: Annotated[
        tuple[Annotated[tuple[Text, ...], Field(min_length=2)], ...],
        Expected("a list of lists of two swept keys or more, for example [[load.prefetch,load.batch_size]]"),
    ]
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)]

    def faults(self) -> Faults:
        if len(set(self.objectives)) < len(self.objectives):
            yield "objectives", self.objectives, "each objective once", "remove one of the two"
        if self.vary_seed and self.repeats < FEWEST_REPEATS:
            expected = f"false with sweep.repeats={self.repeats}, which compares nothing"
            yield "vary_seed", "true", expected, f"set sweep.repeats={FEWEST_REPEATS} or more"


@frozen
class Tune(Stage):
    """What a search may change, and how much time it has.

    Attributes:
        budget_s: Seconds of measuring. The confirmation of what was found is part of them.
        allow: Kinds of parameters that may change: `speed` alone leaves data, order and results as they are; `order`
            adds the cycle length; `data` adds the decoder and the codec of caches, which change pixels.
        seed: Seed of the order of the measurements.
        resume: Folder of an interrupted search to resume; null for a new one.
    """

    path = "tune"

    budget_s: PositiveNumber
    allow: Annotated[
        tuple[Literal["speed", "order", "data"], ...],
        Field(min_length=1),
        Expected("a list of speed, order, data, with speed"),
    ]
    seed: Seed
    resume: OptionalPath

    def faults(self) -> Faults:
        if "speed" not in self.allow or len(set(self.allow)) < len(self.allow):
            remedy = "set tune.allow=[speed], [speed,order] or [speed,order,data]"
            yield "allow", self.allow, "speed, and each further kind once", remedy
