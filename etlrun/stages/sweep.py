"""The `sweep` and `tune` groups, which are no part of a run's config."""

from typing import Annotated, Literal

from pydantic import Field

from etlrun.stages.base import Expected, Positive, PositiveNumber, Seed, Stage, Text
from etlrun.stages.flow import Faults
from etlrun.stages.paths import OptionalPath
from etlrun.system.values import frozen

Objective = Literal["throughput", "utilisation", "peak_memory"]
Varied = Literal["seed", "split"]
FEWEST_REPEATS = 3
"""Minimum number of repeats with which configs are compared, and the baseline runs in pairs."""
MOST_FOLDS = 20


@frozen
class Sweep(Stage):
    """How the jobs of a sweep are made, ordered and run.

    Attributes:
        repeats: Runs of each config. From 3 on, configs are compared, and the first one runs twice as often: its pairs
            show the noise of the machine.
        seed: Seed of the order in which repeated runs are shuffled.
        folds: Folds of the training examples: each round validates on another one and trains on the others, and
            accuracies and losses are compared, too; null for the splits of the configs.
        vary: What differs from round to round, so that accuracies and losses are compared, too: `seed` is the config's
            plus the round, `split` validates on another part of the training examples of the same size.
        comparisons: Number of comparisons, those of other sweeps included, for which intervals hold at once; at least
            those of this sweep count.
        resume: Folder of a sweep to resume; null for a new one.
        on_error: Whether the other jobs run after one has failed.
        timeout_s: Seconds after which a job fails; null for no limit.
        max_jobs_in_flight: Jobs that run at once. Timings need an otherwise idle machine.
        unfit: Combinations of values that don't fit together: `skip` skips and reports them, `refuse` refuses the
            sweep. A search always refuses them.
        exclude: Rules such as `cache!=disk cache.dir!=null`: combinations for which all terms are true are skipped.
        zip: Lists of keys whose values are paired, the first with the first.
        objectives: Results of each job for a search (`hydra/sweeper=optuna`), in the order of its directions.
    """

    path = "sweep"

    repeats: Annotated[int, Field(ge=1, le=1_000)]
    seed: Seed
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
    folds: Annotated[
        Annotated[int, Field(ge=FEWEST_REPEATS, le=MOST_FOLDS)] | None,
        Expected(f"an integer from {FEWEST_REPEATS} to {MOST_FOLDS}, or null"),
    ] = None
    vary: Annotated[tuple[Varied, ...], Expected("a list of seed and split, such as [seed]")] = ()
    comparisons: Annotated[int, Field(ge=1, le=1_000_000)] = 1

    @property
    def rounds(self) -> int:
        """Number of rounds, in each of which every config runs."""
        return self.folds or self.repeats

    @property
    def cuts(self) -> bool:
        """Whether each round has its own splits."""
        return self.folds is not None or "split" in self.vary

    @property
    def is_paired(self) -> bool:
        """Whether the baseline runs twice in each round, which shows the noise of the machine, or that of seeds."""
        return self.rounds >= FEWEST_REPEATS and not self.cuts

    @property
    def varied(self) -> str:
        """What each round has of its own, in words; empty if rounds differ in the state of the machine alone."""
        return " and ".join(["splits"] * self.cuts + ["seed"] * ("seed" in self.vary))

    def faults(self) -> Faults:
        if len(set(self.objectives)) < len(self.objectives):
            yield "objectives", self.objectives, "each objective once", "remove one of the two"
        if len(set(self.vary)) < len(self.vary):
            yield "vary", self.vary, "each word once", "remove one of the two"
        if self.folds is not None and self.repeats != 1:
            expected = f"1 with sweep.folds={self.folds}, which is the number of rounds"
            yield "repeats", self.repeats, expected, "leave it out"
        elif self.vary and self.rounds < FEWEST_REPEATS:
            expected = f"none with sweep.repeats={self.repeats}, which compares nothing"
            yield "vary", self.vary, expected, f"set sweep.repeats={FEWEST_REPEATS} or more"
        if self.folds is not None and "split" in self.vary:
            expected = f"seed alone with sweep.folds={self.folds}, which are splits"
            yield "vary", self.vary, expected, "leave split out"


@frozen
class Tune(Stage):
    """What a search may change, and how much time it has.

    Attributes:
        budget_s: Seconds of measuring, the confirmation of what was found included.
        allow: Kinds of keys that may change: `speed` leaves data, order and results as they are; `order` adds the cycle
            length; `data` adds the decoder and the codec of caches, which change pixels.
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
