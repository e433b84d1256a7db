"""What a search tries: configs of a space of values, and windows, short runs whose passes are timed.

A window is a run in a folder of its own, in a forked process. One that has ended is not run again: a search that was
killed is repeated with the same decisions, up to the window in which it was killed.
"""

import copy
import math
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product, takewhile
from pathlib import Path
from typing import Any

from etlrun.config.grid import Job
from etlrun.config.request import put
from etlrun.planning.plan import Plan, name_of_point, resizes, validates
from etlrun.planning.planner import plan
from etlrun.planning.spec import ABSENT, bare, parse, value_at
from etlrun.record.config import read_config
from etlrun.record.record import Record, nobodys
from etlrun.record.summary import COMPLETED, FAILED, Epoch, Summary, read_summary
from etlrun.run import run as runs
from etlrun.stages import STAGES
from etlrun.stages.cache import CACHES, DiskCache, MemoryCache, outlives_run
from etlrun.stages.extract import Interleave
from etlrun.stages.load import Load
from etlrun.stages.sweep import Tune
from etlrun.sweep.engine import started
from etlrun.sweep.ledger import put_aside
from etlrun.sweep.tune import CACHE_FOLDER
from etlrun.system.errors import ConfigError, Failure
from etlrun.system.values import Block, Composed, frozen

Changes = Mapping[str, Any]
"""Values that differ from those of the baseline, by dotted key."""

CACHE, POINT, CODEC = "cache.name", MemoryCache.key("at"), DiskCache.key("codec")
EXTRACT_CALLS, CYCLE = Interleave.key("num_parallel_calls"), Interleave.key("cycle_length")
TRANSFORM_CALLS, DECODER = "transform.num_parallel_calls", "transform.decode.library"
CALLS = (TRANSFORM_CALLS, EXTRACT_CALLS)
FAST, PROCESSES = "transform.decode.fast", "transform.decode.processes"
_MANY_CORES = 8
"""From how many on processes that decode may be faster than threads."""
SHUFFLE_AT, BATCH_CALLS, PREFETCH = (Load.key(name) for name in ("shuffle_at", "num_parallel_calls", "prefetch"))
_CYCLES = (1, 4, 16, "all")
_GRACE_S = 30.0
"""Seconds that a window which is ended has for its summary, before it is killed."""
_START_S = 0.3
"""Seconds that a process takes to start and to end, which its run does not count."""
_BEGIN_S = 0.06
"""Seconds of the wait for a first batch that do not grow with the buffer: graphs are built, files are opened."""


@dataclass
class Candidate:
    """A config of the search.

    Attributes:
        number: Number of the config; 0 is the baseline.
        changes: What it changes.
        config: All of its values.
        plan: Its plan.
        predicted_s: Seconds of all epochs as predicted from the costs, and the bounds of that; None for the baseline.
        error: Why it failed in the race; empty if it did not.
        times_s: Seconds of all epochs by each of its windows.
    """

    number: int
    changes: Changes
    config: Block
    plan: Plan
    predicted_s: tuple[float, float, float] | None = None
    error: str = ""
    times_s: list[float] = field(default_factory=list)

    @property
    def words(self) -> str:
        """The changes as overrides."""
        return words(self.changes)


def words(changes: Changes) -> str:
    """Return changes as overrides; `as it is` for none."""
    return " ".join(f"{key}={bare(value)}" for key, value in changes.items()) or "as it is"


def value_of(config: Composed, key: str) -> Any:
    """Return the value of a dotted key; None if the config does not have it."""
    found = value_at(config, key.split("."))
    return None if found is ABSENT else found


def changed(config: Composed, changes: Changes) -> Block:
    """Return the config with these changes."""
    made = copy.deepcopy(dict(config))
    for key, value in changes.items():
        put(made, key, value)
    return made


class SearchSpace:
    """All configs that a search may try.

    Attributes:
        baseline: The config that the search starts from.
        options: Values of each key that is varied by itself.
        caches: Values of the keys of a cache that are varied together; the first is the baseline's.
    """

    def __init__(self, job: Job, tune: Tune, cores: int) -> None:
        self.baseline = Candidate(0, {}, job.config, job.plan)
        self._others = dict[str, Candidate]()
        self.options = {
            key: [value for value in dict.fromkeys(values) if value != value_of(job.config, key)]
            for key, values in _values(job, tune, cores)
        }
        self.caches = [{}, *_caches(job, tune)]

    def __iter__(self) -> Iterator[Changes]:
        """Yield what each config changes; some do not fit together."""
        options = ([{}, *({key: value} for value in values)] for key, values in self.options.items())
        for parts in product(self.caches, *options):
            yield {key: value for part in parts for key, value in part.items()}

    def __len__(self) -> int:
        return len(self.caches) * math.prod(1 + len(values) for values in self.options.values())

    def candidate(self, changes: Changes) -> Candidate | str:
        """Return the candidate with these changes, always the same; or why its values do not fit together."""
        base = self.baseline
        changes = {key: value for key, value in changes.items() if value_of(base.config, key) != value}
        if not changes:
            return base
        known = words(dict(sorted(changes.items())))
        if known not in self._others:
            config = changed(base.config, changes)
            try:
                made = Candidate(1 + len(self._others), changes, config, plan(parse(config, STAGES)))
            except ConfigError as error:
                return str(replace(error.faults[0], remedy=""))
            self._others[known] = made
        return self._others[known]


def autotuned(space: SearchSpace) -> Changes:
    """Return the changes that leave to AUTOTUNE whatever it sets."""
    keys = {planned.stage.tuned.key for planned in space.baseline.plan.train if planned.stage.tuned}
    return dict.fromkeys(sorted({*keys, PREFETCH, TRANSFORM_CALLS}), "autotune")


def fewer(config: Composed, key: str) -> list[int]:
    """Return a quarter of the calls that a config makes in parallel, at least one; nothing of one that sets none."""
    calls = value_of(config, key)
    return [max(1, calls // 4)] if isinstance(calls, int) and calls > 1 else []


def _values(job: Job, tune: Tune, cores: int) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield keys and the values worth trying."""
    extract, spec = job.config["extract"], job.plan.spec
    if spec.transform.steps:
        yield TRANSFORM_CALLS, [1, *fewer(job.config, TRANSFORM_CALLS), cores, 2 * cores, 4 * cores, "autotune"]
    if "num_parallel_calls" in extract:
        yield EXTRACT_CALLS, [1, *fewer(job.config, EXTRACT_CALLS), cores, 4 * cores, "autotune"]
    yield PREFETCH, [2, "autotune"]
    yield BATCH_CALLS, [None, "autotune"]
    if spec.load.shuffles and not spec.load.is_by_number:
        yield SHUFFLE_AT, ["auto"]
    if cores >= _MANY_CORES and resizes(spec, "turbo"):
        yield PROCESSES, [0, "cores"]
    if "order" in tune.allow and "cycle_length" in extract:
        yield CYCLE, _CYCLES
    if "data" in tune.allow and resizes(spec, "turbo"):
        yield DECODER, ["turbo", "tensorflow"]
        yield FAST, [True]


def _caches(job: Job, tune: Tune) -> Iterator[Changes]:
    """Yield the caches that differ from the baseline's."""
    spec = job.plan.spec
    cache, steps = job.config["cache"], spec.transform.steps
    steady = [*takewhile(lambda step: not step.random, steps)]
    shared = {step.path for step in (spec.eval_transform.steps if validates(spec) else steps)}
    while len(steady) < len(steps) and steady and steady[-1].path not in shared:
        steady.pop()  # the validation has no such point
    last = "transformed" if len(steady) == len(steps) else name_of_point(steady)
    for target in CACHES:
        for point in dict.fromkeys((last, "source")) if target != "none" else (cache["at"],):
            made = {CACHE: target, POINT: point}
            if any(cache[key.partition(".")[2]] != value for key, value in made.items()):
                yield made
    if "data" in tune.allow:
        yield {CACHE: "disk", POINT: last, CODEC: "jpeg95"}


@frozen
class Scene:
    """What all windows of a search have in common.

    Attributes:
        split: Part of the training split that a pass reads.
        examples: Examples of the whole training split.
        passes: Passes of a window.
        epochs: Passes of the run that is tuned.
        batch_size: Examples per batch.
        buffer: Examples that the first batch of a pass may wait for: those of the shuffle buffer, or a batch.
        step_ms: Milliseconds of a training step on a batch that is ready.
        step_cores: Cores that it keeps busy; 0 on an accelerator.
        is_by_number: Whether examples are read by number, so that a cache on disk is filled before the first batch.
    """

    split: str
    batch_size: int
    buffer: int
    examples: int = 0
    passes: int = 1
    epochs: int = 1
    step_ms: float = 0.0
    step_cores: float = 0.0
    is_by_number: bool = False

    @property
    def ideal_s(self) -> float:
        """Seconds of all epochs with an ideal input pipeline."""
        return self.epochs * self.examples / self.batch_size * self.step_ms / 1000

    def config(self, config: Composed, cache_dir: Path, **measured: Any) -> Block:
        """Return the config of a window of `config`, with other values of `measure` where given."""
        own = in_short(config, self.split, cache_dir)
        own["load"]["class_weights"] = "none"  # of a loss, which a window does not have
        own["measure"] |= measured
        own["trainer"] = {
            "name": "drain",
            "seconds": None,
            "epochs": self.passes,
            "seed": config["trainer"]["seed"],
            "step_ms": self.step_ms,
            "step_cores": self.step_cores,
        }
        return own

    def seconds(self, window: Summary) -> float | None:
        """Return the seconds of all epochs of the whole run, from the passes of a window; None if it failed."""
        if window.status != COMPLETED or not window.epochs:
            return None
        first, *later = map(self._whole_s, window.epochs)
        if self.is_by_number and window.cache and outlives_run(window.cache.target):
            first = window.epochs[0].wall_s * self.examples / max(window.epochs[0].examples, 1)
        return first + (self.epochs - 1) * (statistics.median(later) if later else first)

    def headspace(self, window: Summary) -> float | None:
        """Return the gain with an ideal input pipeline, without the start-up of a process; None without a step."""
        epochs = [
            epoch.model_copy(update={"wall_s": epoch.wall_s - lost_s, "startup_s": epoch.startup_s - lost_s})
            for epoch in window.epochs
            for lost_s in [self._lost_s(epoch)]
        ]
        trained_s = self.seconds(window.model_copy(update={"epochs": epochs}))
        return trained_s / self.ideal_s if trained_s is not None and self.step_ms else None

    def _whole_s(self, epoch: Epoch) -> float:
        """Return the seconds of a pass over the whole split, whose wait for its first batch grows with the buffer."""
        # After it come the examples that are read while others are consumed, and those that the buffer holds at the
        # end. Filling that is slower sets the pace of the former, of which a window may have none, a whole pass most.
        read = max(epoch.examples, 1)
        held, whole = max(min(self.buffer, read), 1), min(self.buffer, self.examples)
        filling_s = min(epoch.fill_wait_s + self._lost_s(epoch), epoch.wall_s)
        rest_s, each_s = epoch.wall_s - filling_s, (filling_s - _BEGIN_S) / held
        if each_s <= rest_s / read:
            return filling_s * whole / held + rest_s * self.examples / read
        pace_s = min(each_s, rest_s / (read - held)) if read > held else each_s
        held_s = (rest_s - (read - held) * pace_s) / held
        return (filling_s + held_s * held) * whole / held + (self.examples - whole) * pace_s

    def _lost_s(self, epoch: Epoch) -> float:
        """Return the start-up without its steps: the first one, and a last one of another size."""
        shapes = -(-epoch.startup_examples // self.batch_size)
        return max(0.0, epoch.startup_s - shapes * self.step_ms / 1000)


def in_short(config: Composed, split: str, cache_dir: Path) -> Block:
    """Return a config with another training split, without validation and without what measures or logs a run."""
    own: Changes = {
        "dataset.split": split,
        "dataset.eval_split": None,
        "cache.dir": str(cache_dir),
        "measure.au_min": None,
        "measure.digest": False,
        "profile": {"name": "none"},
        "logger": {"name": "none"},
    }
    return changed(config, own)


@dataclass
class Windows:
    """Windows of a search in its folder.

    Attributes:
        longest_s: Seconds after which a window is ended and counts as failed.
        spent_s: Seconds of all windows so far, including those of earlier processes.
        ended: Names of the windows that have ended, in order.
    """

    folder: Path
    overrides: list[str]
    longest_s: float = 600.0
    spent_s: float = 0.0
    ended: list[str] = field(default_factory=list)

    @property
    def caches(self) -> Path:
        """Folder of caches on disk, which each window fills anew."""
        return self.folder / CACHE_FOLDER

    def run(self, name: str, config: Composed) -> Summary:
        """Return the summary of the window of that name, which runs unless it has."""
        folder = self.folder / name
        found = read_summary(folder)
        if not found or found.status != COMPLETED or not _has_run(folder, config):
            if folder.exists():
                put_aside(folder, self.folder)  # one that was killed, or of a search with other decisions
            Record.create(folder, config, self.overrides, in_flight=1)
            process = started(folder)
            try:
                process.join(self.longest_s)
            finally:
                is_late = process.exitcode is None
                if is_late:
                    process.terminate()
                    process.join(_GRACE_S)
                if process.exitcode is None:
                    process.kill()
                    process.join()
                shutil.rmtree(self.caches, ignore_errors=True)
            with nobodys(folder):
                runs.settle(folder, process.exitcode or 0)
                if is_late:
                    late = Failure(found=f"no end within {self.longest_s:.3g} s, the longest time of a window")
                    runs.close(folder, FAILED, late)
            gone = Summary(status=FAILED, overrides=[], error="the summary of the window is gone")
            found = read_summary(folder) or gone
        self.ended.append(name)
        self.spent_s += (found.wall_s or 0.0) + _START_S
        return found


def _has_run(folder: Path, config: Composed) -> bool:
    """Return whether a run has this config, but for the folder of its caches, which a search may have moved."""
    with suppress(OSError, ValueError, KeyError):
        before = read_config(folder)
        return before | {"cache": before["cache"] | {"dir": config["cache"]["dir"]}} == config
    return False
