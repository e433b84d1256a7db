"""Ledger of a sweep: its configs, settings and progress, in files that survive a kill at any moment.

SWEEP/sweep.json      command line, settings, and the combinations that are left out, with the rules they break
SWEEP/configs.jsonl   one line per config: its identity, its overrides, and all its values, frozen
SWEEP/lock            held by the process that runs the sweep
SWEEP/3, SWEEP/3.1    first and second run of config 3, each with a summary of its progress
SWEEP/fill-1c4e80d2   job that fills the caches on disk of some configs
SWEEP/attempts/       earlier attempts of runs that were repeated
"""

import json
import random
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel
from pydantic_core import from_json

from etlrun.config.grid import Job, Unfit, identity_of
from etlrun.config.overrides import override_of, typed
from etlrun.config.request import put
from etlrun.config.rounds import own_of, seed_of
from etlrun.planning.plan import Plan, at_cache, values_of
from etlrun.planning.spec import parse_command, told
from etlrun.record.folders import ATTEMPTS, CONFIGS, SWEEP
from etlrun.record.record import Record, nobodys, unwritable
from etlrun.stages.dataset import Dataset
from etlrun.stages.sweep import Sweep
from etlrun.system.errors import ConfigError, WorldError, counted, one_line
from etlrun.system.files import write_atomically
from etlrun.system.values import Block, Composed, grouped

_REQUEST = "overrides", "config_dir", "config_name", "files", "multirun"
RESUME = "sweep.resume="
MOST_RULES = 8
"""Number of rules to report; results.json lists all of them."""


@dataclass(frozen=True, order=True)
class RunKey:
    """One run of a config, or a job that fills the caches on disk of one.

    Attributes:
        config: Number of the config.
        repeat: Number of the repeat, from 0. The baseline of a repeated sweep runs twice per round.
        fills: Key of the caches that a job only fills, 8 hex digits; empty for a run.
    """

    config: int
    repeat: int
    fills: str = ""

    @property
    def name(self) -> str:
        """Name of the run's folder. That of a fill is the same whichever config fills the caches."""
        if self.fills:
            return f"fill-{self.fills}"
        return f"{self.config}.{self.repeat}" if self.repeat else str(self.config)


@dataclass(frozen=True)
class Shared:
    """Caches on disk of a config: digest of the values that determine them, 16 hex digits, and the seed if it does."""

    values: str
    seed: int | None

    @classmethod
    def of(cls, plan: Plan) -> Self | None:
        """Return the caches of a plan; None if they don't outlive a run."""
        spec = plan.spec
        if not spec.cache.outlives_run:
            return None
        kept = {name: at_cache(stages)[0] for name, stages in plan.pipelines.items()}
        of_features = plan.spec.cache.keeps_features
        known = {
            "dataset": asdict(spec.dataset),
            "stages": {name: values_of(before) for name, before in kept.items()},
            "cache": [spec.cache.dir, spec.cache.at, spec.cache.codec],
            "model": [vars(spec.model), spec.fit and spec.fit.mixed_precision] if of_features else None,
        }
        has_seed = any(planned.is_random for planned in chain.from_iterable(kept.values()))
        has_seed |= of_features and spec.model.weights is None
        return cls(identity_of(known), spec.trainer.seed if has_seed else None)


class Config(BaseModel, frozen=True):
    """Config of a sweep, frozen at the start of the sweep.

    Attributes:
        number: Position in the grid, from 0; 0 is the baseline.
        identity: First 16 hex digits of a SHA-256 over all values.
        fingerprint: Fingerprint of the plan, equal for configs that differ only in speed.
        overrides: Overrides that the config was composed with.
        unused: Notes on values for options that the config has not chosen, a sentence each.
        shared: Caches on disk that it reads; None for none.
        line: Line of `configs.jsonl` with the values.
    """

    number: int
    identity: str
    fingerprint: str
    overrides: tuple[str, ...]
    unused: tuple[str, ...]
    shared: Shared | None
    line: str

    @classmethod
    def of(cls, number: int, job: Job) -> Self:
        """Create the config of a job in the grid."""
        shared = Shared.of(job.plan)
        known = {
            "identity": identity_of(job.used),
            "fingerprint": job.plan.fingerprint,
            "overrides": job.overrides,
            "unused": list(told(job.plan.spec.unused)),
            "shared": shared and asdict(shared),
            "config": job.used,
        }
        return cls._from(number, json.dumps(known, default=str))

    @classmethod
    def _from(cls, number: int, line: str) -> Self:
        return cls.model_validate({**from_json(line), "number": number, "line": line})

    @classmethod
    def all_in(cls, folder: Path) -> list[Self]:
        """Read the configs of the sweep in `folder`."""
        configs = list[Self]()
        for place, line in enumerate((folder / CONFIGS).read_text(encoding="utf-8").split("\n"), 1):
            try:
                configs += [cls._from(len(configs), line)] if line.strip() else []  # an editor may have added one
            except ValueError as error:
                raise ValueError(f"{CONFIGS}, line {place}: {one_line(error)}") from error
        return configs

    @property
    def values(self) -> Block:
        """Composed values."""
        return dict(json.loads(self.line)["config"])


@dataclass(eq=False)
class Ledger:
    """A sweep in its folder.

    Attributes:
        folder: Folder of the sweep.
        sweep: Settings of the sweep.
        configs: Configs by number.
        request: Request on the command line: `overrides`, `config_dir`, `config_name`; `files`, the digest of the
            config files at the start; and `multirun`, the values in Hydra's own config.
        unfit: Combinations that are left out.
        opened_s: When this process opened it, in seconds since 1970.
    """

    folder: Path
    sweep: Sweep
    configs: list[Config]
    request: Composed
    unfit: Sequence[Unfit] = ()
    opened_s: float = field(default_factory=time.time, init=False)

    @classmethod
    def create(
        cls, folder: Path, sweep: Sweep, jobs: Sequence[Job], request: Composed, unfit: Sequence[Unfit] = ()
    ) -> Self:
        """Create a sweep of `jobs`, one config for those with equal values; `WorldError` if the folder has a sweep."""
        if (folder / SWEEP).exists():
            expected = "a new folder for each sweep, so that nothing is overwritten"
            remedy = f"resume it with: etlrun -m {typed(RESUME, folder)}, or choose another hydra.sweep.dir"
            raise WorldError(folder, "a sweep", expected, remedy)
        ledger = cls(folder, sweep, [*configs_of(jobs)], request, unfit)
        ledger.save()
        return ledger

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the sweep in `folder`; `WorldError` if there is none."""
        try:
            known = json.loads((folder / SWEEP).read_bytes())
            configs = Config.all_in(folder)
            if len(configs) != known["configs"]:
                raise ValueError(f"{CONFIGS} has {counted(len(configs), 'config')}, {SWEEP} says {known['configs']}")  # noqa: TRY301
            request = {key: known["request"][key] for key in _REQUEST}
            unfit = [Unfit(**{name: tuple(of) for name, of in dict(values).items()}) for values in known["unfit"]]
            return cls(folder, parse_command(_as_now(known["sweep"]), Sweep), configs, request, unfit)
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            found, expected = f"no sweep ({type(error).__name__}: {error})", f"with its {SWEEP} and {CONFIGS}"
            remedy = "pass the folder that the sweep printed, or start a new sweep without sweep.resume"
            raise WorldError(folder, found, f"the folder of a sweep, {expected}", remedy) from error

    def save(self) -> None:
        """Write configs and settings, each file atomically."""
        known = {
            "request": self.request,
            "sweep": asdict(replace(self.sweep, resume=None)),
            "configs": len(self.configs),
            "unfit": [*map(asdict, self.unfit)],
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / CONFIGS, "".join(f"{config.line}\n" for config in self.configs))
            write_atomically(self.folder / SWEEP, json.dumps(known, indent=2) + "\n")
        except OSError as error:
            raise unwritable(self.folder, error) from error

    @property
    def runs(self) -> list[RunKey]:
        """All runs in execution order: jobs that fill caches, then the runs that are compared.

        Those are in the order of the grid, or with repeats in rounds, each shuffled. Which config fills a cache depends
        on the values of the configs that share it, and not on their order.
        """
        shuffle, runs = random.Random(self.sweep.seed), list[RunKey]()  # noqa: S311 - no secret
        paired = self.sweep.is_paired
        for turn in range(self.sweep.rounds):
            turns = [RunKey(number, turn) for number in range(paired, len(self.configs))]
            turns += [RunKey(0, 2 * turn + twin) for twin in range(2 * paired)]
            if self.sweep.rounds > 1:
                shuffle.shuffle(turns)
            runs += turns
        first: dict[str, RunKey] = {}
        for run in sorted(runs, key=lambda run: (self.configs[run.config].identity, run.repeat)):
            if key := self.caches_of(run):
                first.setdefault(key, RunKey(run.config, run.repeat, key))
        return [*first.values(), *runs]

    def caches_of(self, run: RunKey) -> str:
        """Return the key of the caches on disk of a run, `RunKey.fills` of the job that fills them; empty for none."""
        config = self.configs[run.config]
        if not (shared := config.shared):
            return ""
        own: list[Any] = [] if shared.seed is None else [str(seed_of(self.sweep, shared.seed, *self.place_of(run)))]
        if self.sweep.cuts:
            splits = own_of(self.sweep, config.values, *self.place_of(run))
            own += [splits[Dataset.key_of(name)] for name in ("train", "validation")]
        return identity_of([shared.values, *own])[:8]

    def place_of(self, run: RunKey) -> tuple[int, int]:
        """Return the round of a run, from 0, and 1 for the second run of the baseline in it, else 0."""
        return divmod(run.repeat, 2) if self.sweep.is_paired and not run.config else (run.repeat, 0)

    @property
    def resume_command(self) -> str:
        """Shell command that resumes the sweep."""
        return f"etlrun -m {typed(RESUME, self.folder)}"

    def folder_of(self, run: RunKey) -> Path:
        """Return the folder of a run."""
        return self.folder / run.name

    def frozen(self, run: RunKey) -> tuple[Block, list[str]]:
        """Return values and overrides of a run: those of its config, and those that its round has of its own."""
        config = self.configs[run.config]
        values, overrides = config.values, [*config.overrides]
        for key, value in own_of(self.sweep, values, *self.place_of(run)).items():
            put(values, key, value)
            word = override_of(key, value)
            overrides = [*(of for of in overrides if of.partition("=")[0].lstrip("+") != key), word]
        return values, overrides

    def start(self, run: RunKey) -> Path:
        """Create the folder of a run with its frozen config, and return it; an earlier attempt is kept."""
        folder = self.folder_of(run)
        if folder.exists():
            put_aside(folder, self.folder)
        details: Block = {name: self.request.get(name) for name in ("config_dir", "config_name")}
        details |= {"only_fills": True} if run.fills else {}
        details |= {"in_flight": self.sweep.max_jobs_in_flight, "sitting_s": self.opened_s}
        Record.create(folder, *self.frozen(run), **details)
        return folder


def _as_now(sweep: Composed) -> Block:
    """Return the settings of a sweep as they are now: one of an older version has `vary_seed`."""
    known = dict(sweep)
    return {"vary": ["seed"]} | known if known.pop("vary_seed", False) else known


def put_aside(folder: Path, home: Path) -> None:
    """Move the folder of a run to the attempts in `home`, once no process is at work there."""
    with nobodys(folder):
        attempts = home / ATTEMPTS
        attempts.mkdir(exist_ok=True)
        free = (attempts / f"{folder.name}-{number}" for number in count(1))
        shutil.move(folder, next(path for path in free if not path.exists()))


def own_overrides(overrides: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return for each list of overrides those whose values differ between the lists; the last one of a key counts."""
    by_key = [{override.partition("=")[0]: override for override in of} for of in overrides]
    keys = dict.fromkeys(chain.from_iterable(by_key))
    swept = [key for key in keys if len({of.get(key) for of in by_key}) > 1]
    return [tuple(of[key] for key in swept if key in of) for of in by_key]


def configs_of(jobs: Iterable[Job]) -> dict[Config, list[int]]:
    """Return the numbered configs of `jobs`, without duplicates, each with the positions of its jobs."""
    found: dict[str, tuple[Config, list[int]]] = {}
    for place, job in enumerate(jobs):
        config = Config.of(len(found), job)
        found.setdefault(config.identity, (config, []))[1].append(place)
    return dict(found.values())


def left_out(unfit: Sequence[Unfit], configs: Sequence[Sequence[str]]) -> tuple[Unfit, ...]:
    """Return the combinations `unfit` of a grid whose configs have these overrides."""
    own = own_overrides([*configs, *(of.overrides for of in unfit)])[len(configs) :]
    return tuple(replace(of, own=words) for of, words in zip(unfit, own, strict=True))


def describe(combinations: Sequence[Unfit]) -> Iterator[str]:
    """Yield a line for each rule: how many combinations break it, and which overrides these have in common."""
    broken = grouped((rule, of) for of in combinations for rule in of.rules)
    rules = sorted(broken.items(), key=lambda item: -len(item[1]))
    for rule, every in rules[:MOST_RULES]:
        common = [override for override in every[0].own if all(override in of.own for of in every)]
        which = f" with {' '.join(common)}" if common else ""
        yield f"{counted(len(every), 'combination')}{which}: {rule}"
    if others := rules[MOST_RULES:]:
        more = counted(len({of.overrides for _, every in others for of in every}), "combination")
        yield f"{more} by {counted(len(others), 'other rule')}; results.json lists all"


def unused(sentences: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the notes on unused values, given by config, each once with the configs that it applies to."""
    for sentence in dict.fromkeys(chain.from_iterable(sentences)):
        of = [str(number) for number, own in enumerate(sentences) if sentence in own]
        yield sentence if len(of) == len(sentences) else f"configs {', '.join(of)}: {sentence}"
