"""Check of all configs in a folder: what is wrong, what is slow, and for which machine, as several formats have it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from itertools import pairwise, product, takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from etlrun.config import request as requests
from etlrun.config.composer import MISSING, NOT_OF_A_RUN, Composer
from etlrun.config.files import Layer, config_files, unloadable
from etlrun.config.overrides import quoted
from etlrun.planning import render
from etlrun.planning.plan import Plan, PlannedStage, at_cache, name_of_point
from etlrun.planning.planner import plan, unread_cache
from etlrun.planning.spec import bare, leaves, parse
from etlrun.report.doc import Doc, Line, Lines
from etlrun.review.effects import size_of
from etlrun.review.folders import Folders, KeyEntry, entries, located, of_whole, place_of, policy_of, without_configs
from etlrun.review.revisions import top_of
from etlrun.review.sides import DEFAULT, Options, Variant, Words, composed, hidden, named_default
from etlrun.stages import STAGES
from etlrun.stages.cache import MEMORY_SHARE
from etlrun.stages.measure import ADVICE
from etlrun.stages.step import Parse
from etlrun.system import VERSION
from etlrun.system.errors import ConfigError, Fault, counted, of_file, printable
from etlrun.system.machine import cores, driver_gpus, free_memory_bytes, megabytes, memory_bytes
from etlrun.system.values import frozen, grouped


class Advice(NamedTuple):
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
        advice = f"{self.evidence}\n    -> try {self.override}"
        return f"{self.name}: {f'silenced: {self.reason}' if self.reason else advice}"


def lint(plan: Plan, cores: int, free_bytes: int) -> list[Advice]:
    """Return the advice for a plan, including silenced advice, on a machine with CPU cores and available memory."""
    silence, order = plan.spec.measure.silence, [*ADVICE]
    found = [*_of_stages(plan, cores), *_of_cache(plan, free_bytes)]
    found.sort(key=lambda of: order.index(of.name))
    return [of._replace(reason=silence.get(of.name, "")) for of in found]


def _of_stages(plan: Plan, cores: int) -> Iterator[Advice]:
    """Yield advice on stages that work one after another, or too many at a time."""
    spec = plan.spec
    steps = ", ".join(step.path for step in spec.transform.steps)
    if spec.transform.num_parallel_calls in {None, 1} and cores > 1 and steps:
        evidence = f"{steps} run one example at a time; {cores - 1} of {cores} cores are idle"
        yield Advice("serial_map", evidence, "transform.num_parallel_calls=autotune")
    if spec.load.prefetch == 0:
        evidence = "load.prefetch=0: the model waits while the next batch is prepared"
        yield Advice("no_prefetch", evidence, "load.prefetch=autotune")
    for group, stage in (("extract", spec.extract), ("transform", spec.transform)):
        calls = getattr(stage, "num_parallel_calls", None)
        if isinstance(calls, int) and calls > cores:
            key = f"{group}.num_parallel_calls"
            yield Advice("parallelism_above_cores", f"{key}={calls}, with {cores} cores", f"{key}=autotune")


def _of_cache(plan: Plan, free_bytes: int) -> Iterator[Advice]:
    """Yield advice on a cache that is not read, too large, or before costly steps."""
    if unread := unread_cache(plan.spec):
        yield Advice("cache_unread", unread.removesuffix("."), "cache=none")
    before, cache, after = at_cache(plan.train)
    if cache is None:
        return
    if not cache.outlives_run:
        sizes = [size_of(plan, name)[0] for name, stages in plan.pipelines.items() if stages]
        if (size := sum(filter(None, sizes))) > MEMORY_SHARE * free_bytes:
            free = f"{megabytes(free_bytes)} of memory are free, {MEMORY_SHARE:.0%} of it for caches"
            yield Advice("cache_above_memory", f"the cache needs {megabytes(size)}; {free}", "cache=disk")
    epochs, steps = plan.spec.trainer.all_epochs, [step for planned in after for step in planned.steps]
    steady = [*takewhile(lambda step: not step.is_random, steps)]
    while steady and not steady[-1].stage.is_costly:
        steady.pop()
    if steady and cache.at != "features" and epochs != 1:
        again = [step.stage.path for step in steady if step.stage.path != Parse.path]
        sizes_there = " there, ".join(_size(of) for of in (before[-1], steady[-1]))
        evidence = f"the cache precedes {', '.join(again)}, repeated in {epochs or 'all'} epochs; an example takes "
        point = name_of_point([step.stage for step in steady])
        yield Advice("cache_early", f"{evidence}{sizes_there} after {again[-1]}", f"cache.at={point}")


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
    __pydantic_config__ = ConfigDict(extra="forbid")

    @classmethod
    def here(cls, fingerprint: str, overrides: list[str], changes: Mapping[str, Any]) -> Self:
        """Return evidence from this machine."""
        gpus = [gpu.name for gpu in driver_gpus()]
        machine: dict[str, Any] = {"cores": cores(), "memory_gb": round(memory_bytes() / 1e9), "gpus": gpus}
        return cls(fingerprint=fingerprint, overrides=overrides, changes=dict(changes), **machine)

    @property
    def machine(self) -> str:
        """The machine in words."""
        return ", ".join([f"{self.cores} cores", f"{self.memory_gb} GB", *self.gpus])

    @property
    def comment(self) -> str:
        """The line of a config file that holds it."""
        return f"{_MARK}{json.dumps(asdict(self))}"


def _stale(text: str, name: str, files: Composer, checked: Checked) -> Iterator[Fault]:
    """Yield the faults of the evidence in the file of an experiment; note in `checked` if it is of another machine."""
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.startswith(_MARK))
    number, line = next(lines, (0, ""))
    if not line:
        return
    found = list[tuple[str, str]]()
    experiment = f"experiment={Path(name).stem}"
    try:
        evidence = TypeAdapter(Evidence).validate_json(line.removeprefix(_MARK))
        config = files.values([*evidence.overrides, quoted(experiment)])
        now = plan(parse(config, STAGES)).fingerprint
    except ValidationError as error:
        wrong = "; ".join(": ".join(map(str, (*of["loc"], of["msg"]))) for of in error.errors())
        found.append((wrong, "the comment as `etlrun tune` wrote it"))
    except ConfigError as error:
        found.append((str(error.faults[0]), "a config that can be composed with the overrides of the evidence"))
    else:
        if evidence != Evidence.here(evidence.fingerprint, evidence.overrides, evidence.changes):
            what = f"tuned on another machine ({evidence.machine})"
            remark = replace(of_file(name, what, ""), configs=(experiment,))
            text = f"{experiment}: {what}: its speed here is not known"
            checked.remarks.append(Annotation(NOTE, ELSEWHERE, remark, text))
        if now != evidence.fingerprint:
            found.append((f"evidence for the plan {evidence.fingerprint}", f"that of the plan as it is, {now}"))
        given = dict(leaves("", config))
        found += [
            (f"evidence for {key}={bare(value)}", f"that of the value as it is, {bare(given.get(key))}")
            for key, value in evidence.changes.items()
            if given.get(key) != value
        ]
    for what, expected in found:
        again = "search again with `etlrun tune`, or remove the comment"
        yield of_file(name, what, expected, again, line=number, key="evidence")


ERROR, WARNING, NOTE = "error", "warning", "note"
ELSEWHERE = "tuned_elsewhere"


class Annotation(NamedTuple):
    """A remark on a config file.

    Attributes:
        level: Severity: `ERROR`, `WARNING` or `NOTE`.
        rule: One of `etlrun.review.check.RULES`; empty for what is silenced.
        fault: What was found and where, with the configs that it is about.
        text: What was found and the remedy in printable words, without the file and the line.
    """

    level: str
    rule: str
    fault: Fault
    text: str


@dataclass(kw_only=True)
class Checked:
    """Result of a check.

    Attributes:
        folders: The folders.
        configs: All composed configs, by their overrides or the name of their primary config.
        plans: Plans of the valid experiments and of the default run, by name.
        experiments: Names of all experiments, including invalid ones.
        refused: Options that are incompatible with each other but valid with others, with the reason.
        remarks: Advice, and experiments that were tuned on another machine.
        warnings: Faults that only a strict check has.
        faults: Faults by their text.
    """

    folders: Folders
    configs: dict[Words, Variant] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    experiments: list[str] = field(default_factory=list)
    refused: dict[Words, Fault] = field(default_factory=dict)
    remarks: list[Annotation] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)

    def add(self, faults: Iterable[Fault]) -> None:
        """Add faults, each once."""
        self.faults |= {str(fault): fault for fault in faults}


def compare_plans(checked: Checked, folder: Path, *, update: bool) -> Iterator[str]:
    """Compare the plans of a check with the golden ones in a folder, or write these; yield which are written.

    That of an experiment that no longer exists is removed; one that exists and is invalid keeps its own.
    """
    texts: dict[Path, str | None] = {folder / f"{name}.txt": render.text(plan) for name, plan in checked.plans.items()}
    lost = (path for path in sorted(folder.glob("*.txt")) if path.stem not in checked.experiments)
    texts |= dict.fromkeys(path for path in lost if _LAST_LINE.search(path.read_bytes()))
    if update:
        folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        kept = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        if kept == text:
            continue
        found, expected, line = "a different plan", "the current plan", None
        if update:
            path.unlink() if text is None else path.write_text(text, encoding="utf-8")
            yield f"updated {path}"
            continue
        if text is None:
            found, expected = "a golden plan", "an experiment of that name"
        elif kept is None:
            found = "no golden plan"
        else:
            lines = kept.splitlines(), text.splitlines()
            differ = (number for number, (was, now) in enumerate(zip(*lines, strict=False), 1) if was != now)
            line = next(differ, max(1, len(lines[0])))
        remedy = "repeat the command with --update, and review the diff"
        checked.add([of_file(str(path), found, expected, remedy, line=line)])


def check(folders: Folders, *, strict: bool = False) -> Checked:
    """Check the configs of `folders`: the user's own if given, else the project's, which is always strict."""
    checked = Checked(folders=folders)
    own = [name for name in folders.files if Path(name).is_relative_to(folders.title)]
    experiments = [name for name in own if Path(name).parent.name == "experiment"]
    texts = {name: folders.files[name].decode(errors="replace") for name in experiments}
    broken = {name: fault for name in own if (fault := _unfit(folders.paths[name], name))}
    checked.add(broken.values())
    try:
        options = Options(folders)
        _compose_all(checked, options)
        _judge_options(checked, options)
        for name, text in texts.items():
            variant = checked.configs.get((f"experiment={Path(name).stem}",))
            checked.add(_stale(text, name, options.files, checked) if variant and variant.plan else ())
        for file, path in folders.paths.items():
            if path.parent == folders.own:  # a primary config
                primary = composed([], requests.composer(folders.request([], path.stem)), folders)
                faults = (of_whole(of, file, folders) if of.place == "config" else of for of in primary.faults)
                checked.configs[(f"--config-name={path.stem}",)] = replace(primary, faults=tuple(faults))
    except ConfigError as error:  # in a file that every config needs
        checked.add(located(fault, (), folders, ()) for fault in error.faults)
    _judge(checked)
    for path in config_files(folders.reviewed, ".yml"):
        checked.add([of_file(folders.name(path), "the suffix .yml", ".yaml, the only suffix that Hydra reads")])
    policy = policy_of(folders)
    checked.add(() if policy is None else policy.faults)
    add = checked.add if strict or folders.own is None else checked.warnings.extend
    add(of for name, text in texts.items() for of in _without_header(name, text))
    if checked.configs:
        checked.add(_unreached(checked, own, broken))
    elif not checked.faults:
        checked.add([without_configs(f"in {folders.own}")])
    if not broken:  # which values count is unknown
        checked.add(_never_counting(checked, own))
    return checked


def _unfit(path: Path, name: str) -> Fault | None:
    if not path.as_posix().isprintable():
        return of_file(name, "a name with unprintable characters", "a printable name", "rename it")
    return unloadable(path, name)


def fits(options: Options, word: str) -> bool:
    """Return whether an option fits the defaults of the other groups, or with another option of one or two."""
    is_unfit = options.variant(word).is_unfit
    return not is_unfit or any(options.variant(*of).plan is not None for of in _beside(options, word))


def _beside(options: Options, word: str) -> Iterator[Words]:
    """Yield an option in the place of its base in an experiment, beside one, and beside two if a first one matters."""
    variant = options.variant
    bases = {*variant(word).files} - {*variant().files}
    experiments = (f"experiment={name}" for name in options.files.options("experiment"))
    yield from ((each, word) for each in experiments if bases & {*variant(each).files})
    groups = options.by_group.keys() - NOT_OF_A_RUN - {_group(word)}
    others = [other for group, words in options.by_group.items() if group in groups for other in words]
    yield from ((word, other) for other in others)
    firsts = (other for other in others if _reasons(variant(word, other)) != _reasons(variant(word)))
    yield from ((word, *pair) for pair in product(firsts, others) if _group(pair[0]) != _group(pair[1]))


def _group(word: str) -> str:
    return word.partition("=")[0]


def _compose_all(checked: Checked, options: Options) -> None:
    """Compose the experiments, the options to check, and each of these with the options of adjacent groups."""
    checked.experiments = options.experiments[:]
    if DEFAULT in checked.experiments:
        checked.experiments.remove(DEFAULT)
        checked.add([named_default(options.folders)])
    words: list[Words] = [(f"experiment={name}",) for name in checked.experiments]
    words += [(word,) for word in options.own]
    for one, other in pairwise(options.by_group.values()):
        words += [pair for pair in product(one, other) if any(map(options.folders.is_own, pair))]
    if options.folders.own is None:
        checked.experiments.insert(0, DEFAULT)
        words.insert(0, ())
    checked.configs |= {of: options.variant(*of) for of in words}


def _judge_options(checked: Checked, options: Options) -> None:
    """Collect the faults of options that fit nowhere, and the pairs that don't fit though each of the two does."""
    used = {name for variant in checked.configs.values() if variant.plan is not None for name in variant.files}
    lost = {word for word in options.own if options.folders.file_of(word) not in used and not fits(options, word)}
    for word in filter(lost.__contains__, options.own):
        checked.add(replace(fault, configs=(word,)) for fault in options.variant(word).faults)
    for words, variant in checked.configs.items():
        if _is_free(words) and variant.is_unfit and lost.isdisjoint(words):
            alone = [_reasons(options.variant(word)) for word in words[1:] + words[:1]] if words[1:] else []
            if _reasons(variant) not in alone:
                checked.refused[words] = variant.faults[0]


def _reasons(variant: Variant) -> list[tuple[str, str]]:
    return [(fault.found, fault.expected) for fault in variant.faults]


def label(words: Words) -> str:
    """Return the name of a config in messages."""
    return " ".join(words) or "the default run"


def _is_free(words: Words) -> bool:
    """Return whether these are replaceable options, not a whole run."""
    return bool(words) and not words[0].startswith(("experiment=", "--config-name="))


def _judge(checked: Checked) -> None:
    """Collect faults of whole runs, and of options that are invalid by themselves, and advice for valid runs."""
    met = list[tuple[Fault, str]]()
    broken = {words for words, variant in checked.configs.items() if variant.config is None}
    for words, variant in checked.configs.items():
        if words[1:] and any((word,) in broken for word in words):
            continue  # an option that fails alone fails with every other one, and is reported once
        name = words[0].removeprefix("experiment=") if words else DEFAULT
        if variant.plan is not None and name in checked.experiments:
            checked.plans[name] = variant.plan
        if not (_is_free(words) and variant.is_unfit):  # faults of files are there
            met += [(fault, label(words)) for fault in variant.faults if str(fault) not in checked.faults]
    checked.add(replace(fault, configs=tuple(configs)) for fault, configs in grouped(met).items())
    here = cores(), free_memory_bytes()
    advice = grouped((item, name) for name, plan in checked.plans.items() for item in lint(plan, *here))
    checked.remarks[:0] = (of for item, names in advice.items() for of in _placed(item, names, checked))


def _placed(item: Advice, names: Iterable[str], checked: Checked) -> Iterator[Annotation]:
    """Yield an advice at each line that sets or chooses its override, for all experiments of that line."""
    key, places = item.override.partition("=")[0], list[tuple[tuple[str, int], str]]()
    folders = checked.folders
    for name in names:
        words = () if name == DEFAULT else (f"experiment={name}",)
        layers = [of for of in checked.configs[words].layers if of.path.is_relative_to(folders.reviewed)]
        place = place_of(key, layers, folders) or KeyEntry(key, 0, folders.file_of(words[0]) if words else "")
        places.append(((place.file, place.line), label(words)))
    for (file, line), configs in grouped(places).items():
        of = of_file(file, item.evidence, "", f"try {item.override}", line=line or None, key=key)
        level, rule = (NOTE, "") if item.reason else (WARNING, item.name)
        yield Annotation(level, rule, replace(of, configs=tuple(configs)), f"{', '.join(configs)}: {item}")


def _unreached(checked: Checked, own: list[str], unloadable: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of files that no config uses; those that are `unloadable` may use what they name."""
    configs, folders = checked.configs, checked.folders
    names = {name: Path(name).relative_to(folders.title) for name in own} if folders.own is not None else {}
    concealed = [name for name, inner in names.items() if (folders.base / inner).is_file()]
    yield from map(hidden, concealed)
    reached = {name for variant in configs.values() for name in variant.files}
    reached |= {*concealed, *unloadable, folders.file_of(f"experiment={DEFAULT}")}
    reached |= {name for name, inner in names.items() if inner.parts[0] == "hydra"}
    reached |= {folders.file_of(word.removeprefix("--config-name=")) for words in configs for word in words}
    named = b"\n".join(folders.files[name] for name in unloadable)
    for name in own:
        if name not in reached and os.fsencode(Path(name).stem) not in named:
            remedy = "move it to the folder of its group, or delete it"
            yield of_file(name, "a file that no config uses", "an option of a group in a defaults list", remedy)


def _never_counting(checked: Checked, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of values that a later file overrides in every config."""
    innermost = cache(partial(_innermost, checked.folders))
    counting: set[KeyEntry] = set()
    beaten: dict[KeyEntry, KeyEntry] = {}
    for variant in checked.configs.values():
        last: dict[str, KeyEntry] = {}
        for layer in variant.layers:
            for entry in innermost(layer):
                if entry.key in last:
                    beaten[last[entry.key]] = entry
                last[entry.key] = entry
        counting |= {*last.values()}
    for entry, by in beaten.items():
        if entry not in counting and entry.file in own:
            what, remedy = "a value that has no effect", "remove it, or put `_self_` last in its defaults list"
            expected = f"a value that {by.file}:{by.line} does not override in every config"
            yield of_file(entry.file, what, expected, remedy, line=entry.line, key=entry.key)


def _innermost(folders: Folders, layer: Layer) -> list[KeyEntry]:
    """Return the innermost keys of a file, without mandatory values."""
    name = folders.name(layer.path)
    content = folders.files.get(name, b"")
    found, lines = entries(content, layer.package, name), content.decode(errors="replace").splitlines()
    outer = {of.key.rpartition(".")[0] for of in found}
    return [of for of in found if of.key not in outer and MISSING not in lines[of.line - 1]]


def _without_header(name: str, text: str) -> Iterator[Fault]:
    """Yield the fault of an experiment that does not begin with a comment."""
    head = takewhile(lambda line: line.startswith("#"), text.splitlines())
    if not any(line.strip("# ") and not line.startswith("# @package") for line in head):
        expected = "a comment with the purpose, the command and the cost of the experiment"
        yield of_file(name, "no comment at the top", expected, "add it below `# @package _global_`", line=1)


FILE, CONFLICT, VALUE = "file", "conflict", "value"
RULES: Mapping[str, str] = {
    FILE: "a config file that cannot be used as it is",
    VALUE: "a key or a value that no config can have",
    CONFLICT: "values that conflict with each other",
    **ADVICE,
    ELSEWHERE: "a config that was tuned on another machine, so that its speed here is not known",
}
"""What annotations are about, by the names of their rules."""
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def annotated(checked: Checked) -> list[Annotation]:
    """Return the faults and the remarks of a check, without what a config silences.

    Files are relative to the root of the repository, or absolute outside it.
    """
    found = list[Annotation]()
    for level, faults in ((ERROR, checked.faults.values()), (WARNING, checked.warnings)):
        for fault in faults:
            rule = CONFLICT if fault.is_rule else VALUE if fault.where else FILE
            found.append(Annotation(level, rule, fault, str(replace(fault, file="", line=None)).removeprefix(": ")))
    found += [of for of in checked.remarks if of.rule]
    root = top_of(Path.cwd()).resolve()
    for place, of in enumerate(found):
        path = Path(os.path.normpath(Path.cwd() / of.fault.file))
        file = (path.relative_to(root) if path.is_relative_to(root) else path).as_posix() if of.fault.file else ""
        found[place] = of._replace(fault=replace(of.fault, file=file))
    return found


def of_check(checked: Checked, updated: Iterable[str], wall_s: float) -> Doc:
    """Return what a check found beside faults, with the golden plans that it has updated, and the seconds it took."""
    lines = [Line("", line) for line in updated]
    for (option, *others), fault in checked.refused.items():
        other = "".join(others) or "the defaults of the other groups"
        lines.append(Line("", f"note: {option} does not fit {other}: {fault.place} is {fault.found}", style="soft"))
    lines += [Line("", of.text, style="mark" if of.rule else "soft") for of in checked.remarks]
    warned = grouped((f"{of.found}; expected {of.expected}", of.place) for of in checked.warnings)
    texts = (f"{', '.join(places)}: found {text} (a fault with --strict)" for text, places in warned.items())
    lines += [Line("", text, style="mark") for text in texts]
    counts = f"{counted(len(checked.configs), 'config')} of {counted(len(checked.experiments), 'experiment')}"
    faults = counted(len(checked.faults), "fault") if checked.faults else "no fault"
    told = f"checked {counts} and of options in {wall_s:.1f} s: {faults}"
    return Doc(told, [Lines([*lines, ("", told)])])


def _github(checked: Checked) -> str:
    """Return commands of GitHub Actions, which shows them at their lines."""

    def escaped(text: str, more: str = "") -> str:
        return "".join(f"%{ord(mark):02X}" if mark in f"%\r\n{more}" else mark for mark in text)

    lines = []
    for of in annotated(checked):
        title = printable(of.fault.where) or "etlrun"
        about = {"file": of.fault.file, "line": str(of.fault.line or ""), "title": title}
        given = ",".join(f"{name}={escaped(value, ':,')}" for name, value in about.items() if value)
        lines.append(f"::{'notice' if of.level == NOTE else of.level} {given}::{escaped(of.text)}\n")
    return "".join(lines)


def _sarif(checked: Checked) -> str:
    from urllib.parse import quote

    found, results = annotated(checked), []
    names = [name for name in RULES if any(of.rule == name for of in found)]
    for of in found:
        file = of.fault.file or checked.folders.title
        place = {"uri": quote(file), "uriBaseId": "%SRCROOT%"}
        location = {"artifactLocation": {"uri": Path(file).as_uri()} if Path(file).is_absolute() else place}
        region = {"region": {"startLine": of.fault.line}} if of.fault.line else {}
        about = {"ruleId": of.rule, "ruleIndex": names.index(of.rule), "level": of.level, "message": {"text": of.text}}
        results.append({**about, "locations": [{"physicalLocation": {**location, **region}}]})
    rules = [{"id": name, "shortDescription": {"text": RULES[name]}} for name in names]
    driver = {"name": "etlrun", "semanticVersion": VERSION, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _document(checked: Checked) -> str:
    remarks: dict[str, list[dict[str, Any]]] = {"faults": [], "warnings": []}
    for of in annotated(checked):
        fault = of.fault
        texts = {"key": fault.where, "found": fault.found, "expected": fault.expected, "remedy": fault.remedy}
        values: dict[str, Any] = {"rule": of.rule, "file": fault.file or None, "line": fault.line}
        values |= {name: text or None for name, text in texts.items()} | {"configs": fault.configs}
        remarks["faults" if of.level == ERROR else "warnings"].append(values)
    about = {"format": 1, "configs": len(checked.configs), "experiments": checked.experiments}
    return json.dumps({**about, **remarks}, indent=2) + "\n"


def _junit(checked: Checked) -> str:
    """Return a test suite: a case for each config, and for each file with a fault that is of none."""
    from xml.etree import ElementTree as ET

    found, suites = annotated(checked), ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name="etlrun check")
    configs = {label(words): variant for words, variant in checked.configs.items()}
    others = ((of.fault.file or of.fault.where, of) for of in found if of.level == ERROR and not of.fault.configs)
    about: dict[str, list[Annotation]] = {name: [] for name in configs}
    about |= grouped([*((name, of) for of in found for name in of.fault.configs), *others])
    for name, remarks in about.items():
        faults, slow = ([of for of in remarks if (of.level == ERROR) is is_fault] for is_fault in (True, False))
        kind = name.partition("=")[0].lstrip("-") if "=" in name else "experiment"
        file = name if name not in configs else faults[0].fault.file if faults else ""
        attributes = {"classname": kind if name in configs else "file", "name": name, "file": file}
        case = ET.SubElement(suite, "testcase", {key: text for key, text in attributes.items() if text})
        if faults:  # in one failure: readers take no more
            texts = [str(of.fault) for of in faults]
            first = texts[0].partition("\n")[0]
            message = f"{len(texts)} faults: {first}" if texts[1:] else first
            ET.SubElement(case, "failure", message=message).text = "\n".join(texts)
        elif configs[name].plan is None:  # refused, or of a file that has a case of its own
            ET.SubElement(case, "skipped", message=str(configs[name].faults[0]))
        if slow:
            ET.SubElement(case, "system-out").text = "\n".join(of.text for of in slow)
    counts = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.attrib |= {name: str(len([*suite.iter(tag)])) for name, tag in counts.items()}
    ET.indent(suites)
    written: bytes = ET.tostring(suites, encoding="us-ascii", xml_declaration=True)
    return written.decode("ascii") + "\n"


FORMATS: Mapping[str, Callable[[Checked], str]] = {
    "json": _document, "github": _github, "junit": _junit, "sarif": _sarif,
}  # fmt: skip
"""Functions that return the annotations of a check as a whole text, by the names of the formats."""
