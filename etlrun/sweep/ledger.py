"""What a sweep is made of and how far it is, in files that a kill at any moment leaves whole.

SWEEP/sweep.json      the command line, the settings, and the combinations that are left out, with the rules they break
SWEEP/configs.jsonl   a line for each config: its identity, its overrides, and all its values, frozen
SWEEP/lock            held by the process that runs the sweep
SWEEP/3, SWEEP/3.1    the first and the second run of config 3; the summary in it says how far it is
SWEEP/attempts/       what is left of runs that were made again
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from etlrun.config.jobs import Job, Unfit, differences, identity_of
from etlrun.errors import ConfigError, WorldError
from etlrun.plan.spec import parse_sweep
from etlrun.plan.unused import told
from etlrun.record import record as records
from etlrun.record.locks import nobodys
from etlrun.stages.sweep import FEWEST_REPEATS, Sweep

SWEEP, CONFIGS, ATTEMPTS = "sweep.json", "configs.jsonl", "attempts"
RESUME = "sweep.resume="
_ASKED = ("overrides", "config_dir", "config_name", "files", "multirun")
_BEFORE = {"vary_seed": False, "unfit": "refuse"}
"""Settings that older sweeps don't say."""
_TWIN = 1_000_000
"""Added to the seed of the baseline's second run of a round, however many rounds a sweep has or will have."""
_SEEDS = 2**32


@dataclass(frozen=True, kw_only=True)
class Config:
    """A config of a sweep, as it was when the sweep was started.

    Attributes:
        number: Its place in the grid, from 0; 0 is the baseline.
        identity: 16 hex digits of a SHA-256 over all its values.
        fingerprint: Of its plan: the same for configs that differ in speed alone.
        overrides: With which it was made.
        unused: What its files say to options that it has not chosen, a sentence each.
        line: The line of `configs.jsonl`, in which its values are.
    """

    number: int
    identity: str
    fingerprint: str
    overrides: tuple[str, ...]
    unused: tuple[str, ...]
    line: str

    @classmethod
    def of(cls, number: int, job: Job) -> Config:
        """The config of a job of the grid."""
        known = {"identity": identity_of(job.used), "fingerprint": job.plan.fingerprint, "overrides": job.overrides}
        known["unused"] = list(told(job.plan.spec.unused))
        return cls._from(number, json.dumps({**known, "config": job.used}, default=str))

    @classmethod
    def _from(cls, number: int, line: str) -> Config:
        values = from_json(line)
        return cls(
            number=number,
            identity=values["identity"],
            fingerprint=values["fingerprint"],
            overrides=tuple(values["overrides"]),
            unused=tuple(values.get("unused", ())),
            line=line,
        )

    @classmethod
    def all_in(cls, folder: Path) -> list[Config]:
        """The configs of the sweep in `folder`."""
        configs: list[Config] = []
        for place, line in enumerate((folder / CONFIGS).read_text(encoding="utf-8").split("\n"), 1):
            if line.strip():  # an editor may have added an empty one
                try:
                    configs.append(cls._from(len(configs), line))
                except ValueError as error:
                    raise ValueError(f"{CONFIGS}, line {place}: {error}") from error
        return configs

    @property
    def values(self) -> dict[str, Any]:
        """As it was composed."""
        config: dict[str, Any] = json.loads(self.line)["config"]
        return config


@dataclass(frozen=True, order=True)
class RunKey:
    """One run of a config.

    Attributes:
        config: Its number.
        repeat: From 0. The baseline of a repeated sweep has two to each one of the others.
    """

    config: int
    repeat: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.config}.{self.repeat}" if self.repeat else str(self.config)


class Ledger:
    """A sweep in its folder.

    Attributes:
        folder: Of the sweep.
        sweep: Its settings.
        configs: By number.
        unfit: The combinations that are left out.
        request: What the command line asked for: `overrides`, `config_dir`, `config_name`; `files`, the digest of the
            config files as they were; and `multirun`, what Hydra's own config said.
    """

    def __init__(
        self,
        folder: Path,
        sweep: Sweep,
        configs: Sequence[Config],
        request: Mapping[str, Any],
        unfit: Sequence[Unfit] = (),
    ) -> None:
        self.folder, self.sweep, self.configs, self.request = folder, sweep, list(configs), dict(request)
        self.unfit = list(unfit)
        self._opened_s = time.time()

    @classmethod
    def create(
        cls, folder: Path, sweep: Sweep, jobs: Sequence[Job], request: Mapping[str, Any], unfit: Sequence[Unfit] = ()
    ) -> Ledger:
        """A new sweep of `jobs`, of which those with the same values are one; refused where there is one already."""
        if (folder / SWEEP).exists():
            raise WorldError(
                where=str(folder),
                found="a sweep",
                expected="a folder of its own for each sweep, so that nothing is lost",
                remedy=f"go on with it: {resume_command(folder)}, or choose another hydra.sweep.dir",
            )
        ledger = cls(folder, sweep, _distinct(jobs), request, unfit)
        ledger.save()
        return ledger

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """The sweep in `folder`; `WorldError` where there is none."""
        try:
            known = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
            configs = Config.all_in(folder)
            if len(configs) != known["configs"]:
                raise ValueError(f"{CONFIGS} has {len(configs)} configs, {SWEEP} says {known['configs']}")  # noqa: TRY301
            sweep = parse_sweep({**_BEFORE, **known["sweep"]})
            unfit = [Unfit.of(**values) for values in known.get("unfit", ())]
            return cls(folder, sweep, configs, {key: known["request"][key] for key in _ASKED}, unfit)
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise WorldError(
                where=str(folder),
                found=f"no sweep ({type(error).__name__}: {error})",
                expected=f"the folder of a sweep, with its {SWEEP} and {CONFIGS}",
                remedy="give the folder that the sweep printed, or start a new one without sweep.resume",
            ) from error

    def save(self) -> None:
        """Write what the sweep is made of; each file in one step."""
        sweep = asdict(replace(self.sweep, resume=None))
        unfit = [asdict(combination) for combination in self.unfit]
        known = {"request": self.request, "sweep": sweep, "configs": len(self.configs), "unfit": unfit}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            records.write_atomically(self.folder / CONFIGS, "".join(f"{config.line}\n" for config in self.configs))
            records.write_atomically(self.folder / SWEEP, json.dumps(known, indent=2) + "\n")
        except OSError as error:
            raise records.unwritable(self.folder, error) from error

    def extended(self, jobs: Sequence[Job], unfit: Sequence[Unfit]) -> Iterator[str]:
        """Take over further configs; what is there stays as it is, and what differs now is said."""
        known = {_meaning(config.overrides): config for config in self.configs}
        identities = {config.identity for config in self.configs}
        now = _distinct(jobs)
        if not any(_meaning(config.overrides) in known or config.identity in identities for config in now):
            raise WorldError(
                where=f"sweep.resume={self.folder}",
                found=f"another sweep: {' '.join(self.request['overrides']) or 'of the default config'}",
                expected="one of which some job is on this command line",
                remedy="leave out all overrides but those of `sweep`, or start a new sweep without sweep.resume",
            )
        for config in now:
            before = known.get(_meaning(config.overrides))
            if before is not None and before.identity != config.identity:
                changes = ", ".join(differences(before.values, config.values))
                yield f"config {before.number} has changed since: {changes}; the sweep goes on with its own"
            elif before is None and config.identity not in identities:
                self.configs.append(replace(config, number=len(self.configs)))
                yield f"config {self.configs[-1].number} is new: {' '.join(config.overrides)}"
        self._leave_out(unfit)

    def _leave_out(self, unfit: Iterable[Unfit]) -> None:
        """Take over further combinations that are left out; what is a config by now is none of them."""
        configs = {_meaning(config.overrides) for config in self.configs}
        found = {_meaning(combination.overrides): combination for combination in (*self.unfit, *unfit)}
        self.unfit = [combination for meaning, combination in found.items() if meaning not in configs]

    @property
    def runs(self) -> list[RunKey]:
        """Every run in the order in which it is made: by the grid, or repeated rounds, shuffled each on its own."""
        if self.sweep.repeats == 1:
            return [RunKey(config.number, 0) for config in self.configs]
        shuffle, runs = random.Random(self.sweep.seed), []  # noqa: S311 - an order, no secret
        for turn in range(self.sweep.repeats):
            turns = [RunKey(config.number, turn) for config in self.configs if config.number or not self.is_paired]
            turns += [RunKey(0, 2 * turn + twin) for twin in (0, 1)] if self.is_paired else []
            shuffle.shuffle(turns)
            runs += turns
        return runs

    @property
    def is_paired(self) -> bool:
        """Whether the baseline runs twice in each round."""
        return self.sweep.repeats >= FEWEST_REPEATS

    @property
    def resume_command(self) -> str:
        """What goes on with it, to paste into a shell."""
        return resume_command(self.folder)

    def folder_of(self, run: RunKey) -> Path:
        """Where a run is."""
        return self.folder / run.name

    def frozen(self, run: RunKey) -> tuple[dict[str, Any], list[str]]:
        """The values and the overrides of a run: its config's, with `sweep.vary_seed` but for the seed."""
        config = self.configs[run.config]
        values, overrides = config.values, list(config.overrides)
        if self.sweep.vary_seed:
            turn, twin = (run.repeat, 0) if run.config else divmod(run.repeat, 2)
            seed = (values["trainer"]["seed"] + turn + twin * _TWIN) % _SEEDS
            values["trainer"]["seed"] = seed
            others = [word for word in overrides if word.partition("=")[0].lstrip("+") != "trainer.seed"]
            overrides = [*others, f"trainer.seed={seed}"]
        return values, overrides

    def start(self, run: RunKey) -> Path:
        """The folder of a run that is to start, its config frozen in it; what is left of an earlier attempt is kept."""
        folder = self.folder_of(run)
        if folder.exists():
            with nobodys(folder):
                attempts = self.folder / ATTEMPTS
                attempts.mkdir(exist_ok=True)
                free = (attempts / f"{run.name}-{number}" for number in count(1))
                shutil.move(folder, next(path for path in free if not path.exists()))
        values, overrides = self.frozen(run)
        details = {"in_flight": self.sweep.max_jobs_in_flight, "sitting_s": self._opened_s}
        own_configs = self.request.get("config_dir")
        records.Record.create(folder, values, overrides, config_dir=own_configs, **details)
        return folder


def resume_command(folder: Path) -> str:
    """What goes on with the sweep in `folder`, to paste into a shell."""
    return f"etlrun -m {shlex.quote(f'{RESUME}{folder}')}"


def own_words(overrides: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Of each command line's overrides those whose values differ between them, the last one of a key."""
    given = [{word.partition("=")[0]: word for word in words} for words in overrides]
    keys = dict.fromkeys(key for words in given for key in words)
    swept = [key for key in keys if len({words.get(key) for words in given}) > 1]
    return [tuple(words[key] for key in swept if key in words) for words in given]


def _meaning(words: Iterable[str]) -> frozenset[str]:
    """What overrides set, in whatever order they set it; of several of one key the last one counts."""
    return frozenset({word.partition("=")[0].lstrip("+~"): word.lstrip("+") for word in words}.values())


def _distinct(jobs: Iterable[Job]) -> list[Config]:
    """The configs of `jobs`, numbered; of several with the same values the first."""
    found: dict[str, Config] = {}
    for job in jobs:
        config = Config.of(len(found), job)
        found.setdefault(config.identity, config)
    return list(found.values())
