"""Check of all configs in a folder: experiments, options with adjacent ones, files, evidence, and what is slow."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise, product, takewhile
from pathlib import Path
from typing import Any, Self

from etlrun.config import request as requests
from etlrun.config.composer import MISSING, NOT_OF_A_RUN, Composer
from etlrun.config.files import config_files, unloadable
from etlrun.config.overrides import quoted
from etlrun.planning import render
from etlrun.planning.plan import Plan, PlannedStage, at_cache, name_of_point
from etlrun.planning.planner import plan, unread_cache
from etlrun.planning.spec import bare, leaves, parse
from etlrun.report.doc import Doc, Line, Lines
from etlrun.review.effects import size_of
from etlrun.review.folders import Folders, KeyEntry, entries, located, of_whole, policy_of, without_configs
from etlrun.review.sides import DEFAULT, Variant, composed, hidden, named_default, stand_ins
from etlrun.stages import STAGES
from etlrun.stages.cache import MEMORY_SHARE
from etlrun.stages.measure import ADVICE
from etlrun.stages.step import Parse
from etlrun.system.errors import ConfigError, Fault, counted, of_file
from etlrun.system.machine import cores, driver_gpus, free_memory_bytes, megabytes, memory_bytes
from etlrun.system.values import frozen


@frozen
class Machine:
    """Machine on which configs will run.

    Attributes:
        cores: Number of CPU cores available to a process.
        free_memory_bytes: Available memory.
    """

    cores: int
    free_memory_bytes: int

    @classmethod
    def here(cls) -> Machine:
        """Return the current machine."""
        return cls(cores=cores(), free_memory_bytes=free_memory_bytes())


@frozen
class Advice:
    """Advice on one cause of a slow config.

    Attributes:
        name: Name of the check, one of `ADVICE`.
        evidence: Evidence in the plan or on the machine.
        override: Override that follows the advice.
        reason: Reason why the config silences it; empty if it does not.
    """

    name: str
    evidence: str
    override: str
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name}: silenced: {self.reason}"
        return f"{self.name}: {self.evidence}\n    -> try {self.override}"


def lint(plan: Plan, machine: Machine) -> list[Advice]:
    """Return the advice for a plan, including silenced advice."""
    silence, order = plan.spec.measure.silence, [*ADVICE]
    found = sorted([*_of_stages(plan, machine), *_of_cache(plan, machine)], key=lambda of: order.index(of[0]))
    return [
        Advice(name=name, evidence=evidence, override=override, reason=silence.get(name, ""))
        for name, evidence, override in found
    ]


def _of_stages(plan: Plan, machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yield name, evidence and override of advice on stages that work one after another, or too many at a time."""
    spec, cores = plan.spec, machine.cores
    steps = ", ".join(step.path for step in spec.transform.steps)
    if spec.transform.num_parallel_calls in {None, 1} and cores > 1 and steps:
        evidence = f"{steps} run one example at a time; {cores - 1} of {cores} cores are idle"
        yield "serial_map", evidence, "transform.num_parallel_calls=autotune"
    if spec.load.prefetch == 0:
        evidence = "load.prefetch=0: the model waits while the next batch is prepared"
        yield "no_prefetch", evidence, "load.prefetch=autotune"
    for group, stage in (("extract", spec.extract), ("transform", spec.transform)):
        calls = getattr(stage, "num_parallel_calls", None)
        if isinstance(calls, int) and calls > cores:
            key = f"{group}.num_parallel_calls"
            yield "parallelism_above_cores", f"{key}={calls}, with {cores} cores", f"{key}=autotune"


def _of_cache(plan: Plan, machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yield name, evidence and override of advice on a cache that is not read, too large, or before costly steps."""
    if unread := unread_cache(plan.spec):
        yield "cache_unread", unread.removesuffix("."), "cache=none"
    before, cache, after = at_cache(plan.train)
    if cache is None:
        return
    if not cache.outlives_run:
        sizes = [size_of(plan, name)[0] for name, stages in plan.pipelines.items() if stages]
        if (size := sum(filter(None, sizes))) > MEMORY_SHARE * machine.free_memory_bytes:
            free = f"{megabytes(machine.free_memory_bytes)} of memory are free, {MEMORY_SHARE:.0%} of it for caches"
            yield "cache_above_memory", f"the cache needs {megabytes(size)}; {free}", "cache=disk"
    epochs, steps = plan.spec.trainer.all_epochs, [step for planned in after for step in planned.steps]
    steady = [*takewhile(lambda step: not step.is_random, steps)]
    costly = [place for place, step in enumerate(steady, 1) if step.stage.is_costly]
    if costly and cache.at != "features" and epochs != 1:
        steady = steady[: costly[-1]]
        again = [step.stage.path for step in steady if step.stage.path != Parse.path]
        sizes_there = " there, ".join(_size(of) for of in (before[-1], steady[-1]))
        evidence = f"the cache precedes {', '.join(again)}, repeated in {epochs or 'all'} epochs; an example takes "
        point = name_of_point([step.stage for step in steady])
        yield "cache_early", f"{evidence}{sizes_there} after {again[-1]}", f"cache.at={point}"


def _size(planned: PlannedStage) -> str:
    flow = planned.gives
    size = sum(flow.features[name].bytes or 0 for name in flow.inputs)
    return f"{size:,} bytes" if flow.example_bytes is not None else "as much as the image"


_MARK = "# evidence: "
"""Beginning of the comment that holds evidence."""
_LAST_LINE = re.compile(rb"\nfingerprint [0-9a-f]{16}\n\Z")


@frozen
class Evidence:
    """What an experiment was tuned for.

    Attributes:
        fingerprint: Fingerprint of its plan.
        overrides: Overrides that it was tuned with.
        changes: Values that were found, by their keys, which the fingerprint may not cover.
        cores: CPU cores of the machine.
        memory_gb: Memory of the machine.
        gpus: Names of its GPUs.
    """

    fingerprint: str
    overrides: list[str]
    changes: dict[str, Any]
    cores: int
    memory_gb: int
    gpus: list[str]

    @classmethod
    def here(cls, fingerprint: str, overrides: list[str], changes: Mapping[str, Any]) -> Self:
        """Return evidence from this machine."""
        return cls(fingerprint=fingerprint, overrides=overrides, changes=dict(changes), **_machine_here())

    @property
    def is_from_here(self) -> bool:
        """Whether it is from a machine like this one."""
        return all(vars(self)[name] == value for name, value in _machine_here().items())

    @property
    def machine(self) -> str:
        """The machine in words."""
        return ", ".join([f"{self.cores} cores", f"{self.memory_gb} GB", *self.gpus])

    @property
    def comment(self) -> str:
        """The line of a config file that holds it."""
        return f"{_MARK}{json.dumps(vars(self))}"


def _machine_here() -> dict[str, Any]:
    return {
        "cores": cores(),
        "memory_gb": round(memory_bytes() / 1e9),
        "gpus": [gpu.name for gpu in driver_gpus()],
    }


def stale(text: str, name: str, experiment: str, files: Composer) -> tuple[Evidence | None, list[Fault]]:
    """Return the evidence in the comments of the file `name`, and its faults: it can't be read, or is out of date."""
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.startswith(_MARK))
    number, line = next(lines, (0, ""))
    if not line:
        return None, []
    found, again = list[tuple[str, str]](), "search again with `etlrun tune`, or remove the comment"
    try:
        values: dict[str, Any] = json.loads(line.removeprefix(_MARK))
        words = [str(word) for word in values["overrides"]]
        evidence = Evidence(**values | {"overrides": words, "changes": dict(values["changes"])})
    except (ValueError, TypeError, KeyError) as error:
        what = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        as_written = "the comment as `etlrun tune` wrote it"
        return None, [of_file(name, what, as_written, again, line=number, key="evidence")]
    try:
        config = files.values([*words, quoted(f"experiment={experiment}")])
        now = plan(parse(config, STAGES)).fingerprint
    except ConfigError as error:
        found.append((str(error.faults[0]), "a config that can be composed with the overrides of the evidence"))
    else:
        if now != evidence.fingerprint:
            found.append((f"evidence for the plan {evidence.fingerprint}", f"that of the plan as it is, {now}"))
        given = dict(leaves("", config))
        others = {key: value for key, value in evidence.changes.items() if given.get(key) != value}
        found += [
            (f"evidence for {key}={bare(value)}", f"that of the value as it is, {bare(given.get(key))}")
            for key, value in others.items()
        ]
    return evidence, [of_file(name, what, expected, again, line=number, key="evidence") for what, expected in found]


def outdated(folder: Path, plans: Mapping[str, Plan], known: Collection[str]) -> dict[Path, str | None]:
    """Return the golden plans in a folder that are missing or differ, each with the text that it should have.

    None is that of an experiment that no longer exists: it is not `known`, as invalid ones are.
    """
    texts = {folder / f"{name}.txt": render.text(plan) for name, plan in plans.items()}
    found: dict[Path, str | None] = {path: text for path, text in texts.items() if _text(path) != text}
    lost = [path for path in sorted(folder.glob("*.txt")) if path.stem not in known]
    return found | {path: None for path in lost if _LAST_LINE.search(path.read_bytes())}


def faults_of(plans: Mapping[Path, str | None]) -> Iterator[Fault]:
    """Yield a fault for each outdated golden plan."""
    update = "repeat the command with --update, and review the diff"
    for path, text in plans.items():
        kept = _text(path)
        if text is None:
            yield of_file(str(path), "a golden plan", "an experiment of that name", update)
        elif kept is None:
            yield of_file(str(path), "no golden plan", "the current plan", update)
        else:
            lines = kept.splitlines(), text.splitlines()
            differ = (number for number, (was, now) in enumerate(zip(*lines, strict=False), 1) if was != now)
            line = next(differ, max(1, len(lines[0])))
            yield of_file(str(path), "a different plan", "the current plan", update, line=line)


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


Words = tuple[str, ...]


@dataclass(kw_only=True)
class Checked:
    """Result of a check.

    Attributes:
        configs: All composed configs, by their overrides or the name of their primary config.
        plans: Plans of the valid experiments and of the default run, by name.
        experiments: Names of all experiments, including invalid ones.
        refused: Options that are incompatible with each other but valid with others, with the reason.
        tuned: Machines that experiments were tuned on, if it is not this one, by their names.
        warnings: Faults that only a strict check has.
        faults: Faults by their text.
    """

    configs: dict[Words, Variant] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    experiments: list[str] = field(default_factory=list)
    refused: dict[Words, Fault] = field(default_factory=dict)
    tuned: dict[str, str] = field(default_factory=dict)
    warnings: list[Fault] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)

    def add(self, faults: Iterable[Fault]) -> None:
        """Add faults, each once."""
        self.faults |= {str(fault): fault for fault in faults}


def check(folders: Folders, *, strict: bool = False) -> Checked:
    """Check the configs of `folders`: the user's own if given, else the project's, which is always strict."""
    checked, shown = Checked(), folders.shown[folders.own or folders.base]
    own = [name for name in folders.files if Path(name).is_relative_to(shown)]
    try:
        files = requests.composer(folders.request([]))
        options = _Options(files, folders)
        _compose_all(checked, options)
        _judge_options(checked, options)
        _judge_evidence(checked, files, folders, own)
        for file, path in folders.paths.items():
            if path.parent == folders.own:  # a primary config
                primary = composed([], requests.composer(folders.request([], path.stem)), folders)
                faults = (of_whole(of, file, folders) if of.place == "config" else of for of in primary.faults)
                checked.configs[(f"--config-name={path.stem}",)] = replace(primary, faults=tuple(faults))
    except ConfigError as error:  # in a file that every config needs
        checked.add(located(fault, (), folders, ()) for fault in error.faults)
    broken: dict[str, Fault] = {}
    for name in own:
        fault = unloadable(folders.paths[name], name)
        if not folders.paths[name].as_posix().isprintable():
            fault = of_file(name, "a name with unprintable characters", "a printable name", "rename it")
        broken |= {name: fault} if fault else {}
    checked.faults = {str(fault): fault for fault in broken.values()} | checked.faults
    _judge(checked)
    for path in config_files(folders.own or folders.base, ".yml"):
        checked.add([of_file(folders.name(path), "the suffix .yml", ".yaml, the only suffix that Hydra reads")])
    policy = policy_of(folders)
    checked.add(() if policy is None else policy.faults)
    add = checked.add if strict or folders.own is None else checked.warnings.extend
    add(_without_header(folders, own))
    if checked.configs:
        checked.add(_unreached(checked.configs, folders, own, broken))
    elif not checked.faults:
        checked.add([without_configs(f"in {folders.own}")])
    if not broken:  # which values count is unknown
        checked.add(_never_counting(checked.configs.values(), folders, own))
    return checked


class _Options:
    """The options of all groups; each combination of them is composed once.

    Attributes:
        by_group: Overrides that select them.
        own: Those to check.
    """

    def __init__(self, files: Composer, folders: Folders) -> None:
        self.files, self.folders = files, folders
        own = {path.parent for path in folders.paths.values() if folders.own in path.parents}
        has_options = folders.own is None or any(folder.name != "experiment" for folder in own)
        groups = [group for group in files.groups() if group != "experiment"] if has_options else []
        self.by_group = {group: [f"{group}={option}" for option in files.options(group)] for group in groups}
        self.own = [word for words in self.by_group.values() for word in words if folders.is_own(word)]
        self._made: dict[Words, Variant] = {}

    @cached_property
    def default(self) -> Variant:
        """The run without any option; an own folder needs it only where a value is missing."""
        return composed([], self.files, self.folders)

    def variant(self, *words: str) -> Variant:
        """Return the config of some options, and of the defaults of the other groups."""
        if words not in self._made:
            self._made[words] = composed(list(words), self.files, self.folders, lambda: stand_ins(self.default))
        return self._made[words]

    def fits(self, word: str) -> bool:
        """Return whether an option fits the defaults of the other groups, or with another option of one or two.

        A second one is only looked for beside a first that changes what is wrong. What is derived from an option of an
        experiment fits if it does so in its place.
        """
        alone = self.variant(word)
        if not alone.is_unfit:
            return True
        bases = {*alone.files} - {*self.default.files}
        experiments = [f"experiment={name}" for name in self.files.options("experiment")]
        having = [each for each in experiments if bases & {*self.variant(each).files}]
        if any(self.variant(each, word).plan is not None for each in having):
            return True
        groups = self.by_group.keys() - NOT_OF_A_RUN - {_group(word)}
        others = [other for group, words in self.by_group.items() if group in groups for other in words]
        found = {other: self.variant(word, other) for other in others}
        firsts = [other for other, variant in found.items() if _reasons(variant) != _reasons(alone)]
        pairs = (pair for pair in product(firsts, others) if _group(pair[0]) != _group(pair[1]))
        beside = (self.variant(word, *of) for of in pairs)
        return any(variant.plan is not None for variant in chain(found.values(), beside))


def _group(word: str) -> str:
    return word.partition("=")[0]


def _compose_all(checked: Checked, options: _Options) -> None:
    """Compose the experiments, the options to check, and each of these with the options of adjacent groups."""
    is_own = options.folders.is_own
    checked.experiments = [name for name in options.files.options("experiment") if is_own(f"experiment={name}")]
    if DEFAULT in checked.experiments:
        checked.experiments.remove(DEFAULT)
        checked.add([named_default(options.folders)])
    words: list[Words] = [(f"experiment={name}",) for name in checked.experiments]
    words += [(word,) for word in options.own]
    for one, other in pairwise(options.by_group.values()):
        words += [pair for pair in product(one, other) if any(map(is_own, pair))]
    if options.folders.own is None:
        checked.experiments.insert(0, DEFAULT)
        checked.configs[()] = options.default
    checked.configs |= {of: options.variant(*of) for of in words}


def _judge_options(checked: Checked, options: _Options) -> None:
    """Collect the faults of options that fit nowhere, and the pairs that don't fit though each of the two does."""
    used = {name for variant in checked.configs.values() if variant.plan is not None for name in variant.files}
    lost = {word for word in options.own if options.folders.file_of(word) not in used and not options.fits(word)}
    for word in filter(lost.__contains__, options.own):
        checked.add(replace(fault, configs=(word,)) for fault in options.variant(word).faults)
    for words, variant in checked.configs.items():
        if _is_free(words) and variant.is_unfit and lost.isdisjoint(words):
            alone = [_reasons(options.variant(word)) for word in words[1:] + words[:1]] if words[1:] else []
            if _reasons(variant) not in alone:
                checked.refused[words] = variant.faults[0]


def _reasons(variant: Variant) -> list[tuple[str, str]]:
    return [(fault.found, fault.expected) for fault in variant.faults]


def _judge_evidence(checked: Checked, files: Composer, folders: Folders, own: list[str]) -> None:
    for name in own:
        experiment = Path(name).stem
        variant = checked.configs.get((f"experiment={experiment}",))
        if Path(name).parent.name != "experiment" or variant is None or variant.plan is None:
            continue
        evidence, faults = stale(folders.files[name].decode(errors="replace"), name, experiment, files)
        checked.add(faults)
        if evidence is not None and not evidence.is_from_here:
            checked.tuned[experiment] = evidence.machine


def label(words: Words) -> str:
    """Return the name of a config in messages."""
    return " ".join(words) or "the default run"


def _is_free(words: Words) -> bool:
    """Return whether these are replaceable options, not a whole run."""
    return bool(words) and not words[0].startswith(("experiment=", "--config-name="))


def _judge(checked: Checked) -> None:
    """Collect the faults of whole runs, and of options that are invalid by themselves."""
    met: dict[str, tuple[Fault, list[str]]] = {}
    broken = {words for words, variant in checked.configs.items() if variant.config is None}
    for words, variant in checked.configs.items():
        if words[1:] and any((word,) in broken for word in words):
            continue  # an option that fails alone fails with every other one, and is reported once
        name = DEFAULT if not words else words[0].removeprefix("experiment=")
        if variant.plan is not None and name in checked.experiments:
            checked.plans[name] = variant.plan
        if _is_free(words) and variant.is_unfit:
            continue
        for fault in variant.faults:
            if str(fault) not in checked.faults:  # as are the faults of files
                met.setdefault(str(fault), (fault, []))[1].append(label(words))
    checked.add(replace(fault, configs=tuple(configs)) for fault, configs in met.values())


def _unreached(
    configs: Mapping[tuple[str, ...], Variant], folders: Folders, own: list[str], unloadable: Collection[str]
) -> Iterator[Fault]:
    """Yield the faults of files that no config uses; those that are `unloadable` may use what they name."""
    reached = {name for variant in configs.values() for name in variant.files}
    shown = Path(folders.shown[folders.own or folders.base])
    names = {name: Path(name).relative_to(shown) for name in own} if folders.own is not None else {}
    concealed = [name for name, inner in names.items() if (folders.base / inner).is_file()]
    yield from map(hidden, concealed)
    reached |= {*concealed, (shown / "experiment" / f"{DEFAULT}.yaml").as_posix()}
    reached |= {name for name, inner in names.items() if inner.parts[0] == "hydra"}
    options = [word.removeprefix("--config-name=").replace("=", "/") for words in configs for word in words]
    reached |= {f"{(shown / option).as_posix()}.yaml" for option in options}
    named = b"\n".join(folders.files[name] for name in unloadable)
    for name in own:
        if name not in reached and name not in unloadable and os.fsencode(Path(name).stem) not in named:
            remedy = "move it to the folder of its group, or delete it"
            yield of_file(name, "a file that no config uses", "an option of a group in a defaults list", remedy)


def _never_counting(configs: Iterable[Variant], folders: Folders, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of values that a later file overrides in every config."""
    known: dict[tuple[str, str], list[KeyEntry]] = {}
    counting: set[KeyEntry] = set()
    beaten: dict[KeyEntry, KeyEntry] = {}
    for variant in configs:
        last: dict[str, KeyEntry] = {}
        for layer in variant.layers:
            name = folders.name(layer.path)
            if (name, layer.package) not in known:  # the innermost keys, without mandatory values
                content = folders.files.get(name, b"")
                found, lines = entries(content, layer.package, name), content.decode(errors="replace").splitlines()
                outer = {of.key.rpartition(".")[0] for of in found}
                inner = [of for of in found if of.key not in outer and MISSING not in lines[of.line - 1]]
                known[name, layer.package] = inner
            for entry in known[name, layer.package]:
                if entry.key in last:
                    beaten[last[entry.key]] = entry
                last[entry.key] = entry
        counting |= set(last.values())
    for entry, by in beaten.items():
        if entry not in counting and entry.file in own:
            what, remedy = "a value that has no effect", "remove it, or put `_self_` last in its defaults list"
            expected = f"a value that {by.file}:{by.line} does not override in every config"
            yield of_file(entry.file, what, expected, remedy, line=entry.line, key=entry.key)


def _without_header(folders: Folders, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of experiments that do not begin with a comment."""
    for name in own:
        if Path(name).parent.name != "experiment":
            continue
        lines = folders.files[name].decode(errors="replace").splitlines()
        head = takewhile(lambda line: line.startswith("#"), lines)
        if not any(line.strip("# ") and not line.startswith("# @package") for line in head):
            expected = "a comment with the purpose, the command and the cost of the experiment"
            yield of_file(name, "no comment at the top", expected, "add it below `# @package _global_`", line=1)


def of_check(checked: Checked, advice: Mapping[Advice, list[str]], updated: Iterable[str], wall_s: float) -> Doc:
    """Return what a check found beside faults, with the golden plans that it has updated, and the seconds it took."""
    lines = [Line("", line) for line in updated]
    for (option, *others), fault in checked.refused.items():
        other = "".join(others) or "the defaults of the other groups"
        lines.append(Line("", f"note: {option} does not fit {other}: {fault.place} is {fault.found}", style="soft"))
    loud = {f"{', '.join(names)}: {item}": "soft" if item.reason else "mark" for item, names in advice.items()}
    for name, machine in checked.tuned.items():
        loud[f"{name}: tuned on another machine ({machine}): its speed here is not known"] = "mark"
    warned: dict[str, list[str]] = {}
    for fault in checked.warnings:
        warned.setdefault(f"{fault.found}; expected {fault.expected}", []).append(fault.place)
    loud |= {f"{', '.join(places)}: found {text} (a fault with --strict)": "mark" for text, places in warned.items()}
    counts = f"{counted(len(checked.configs), 'config')} of {counted(len(checked.experiments), 'experiment')}"
    faults = counted(len(checked.faults), "fault") if checked.faults else "no fault"
    told = f"checked {counts} and of options in {wall_s:.1f} s: {faults}"
    return Doc(told, [Lines([*lines, *(Line("", text, style=style) for text, style in loud.items()), ("", told)])])
