"""Check of all configs in a folder: each experiment, and each option with the options of adjacent groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path

from etlrun.config import request as requests
from etlrun.config.composer import NOT_OF_A_RUN, Composer
from etlrun.planning.plan import Plan
from etlrun.review.evidence import evidence_in, out_of_date
from etlrun.review.folders import Folders, located, of_whole, without_configs
from etlrun.review.own_files import broken, never_counting, other_suffixes, unreached, without_header
from etlrun.review.policy import policy_of
from etlrun.review.sides import DEFAULT, Variant, composed, named_default, stand_ins
from etlrun.system.errors import ConfigError, Fault

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
    checked = Checked()
    own = _own(folders)
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
    unloadable = {name: fault for name in own if (fault := broken(folders.paths[name], name)) is not None}
    checked.faults = {str(fault): fault for fault in unloadable.values()} | checked.faults
    _judge(checked)
    checked.add(other_suffixes(folders))
    policy = policy_of(folders)
    checked.add(() if policy is None else policy.faults)
    headless = list(without_header(folders, own))
    if strict or folders.own is None:
        checked.add(headless)
    else:
        checked.warnings += headless
    if checked.configs:
        checked.add(unreached(checked.configs, folders, own, unloadable))
    elif not checked.faults:
        checked.add([without_configs(f"in {folders.own}")])
    if not unloadable:  # which values count is unknown
        checked.add(never_counting(checked.configs.values(), folders, own))
    return checked


def _own(folders: Folders) -> list[str]:
    """Return the files to check."""
    shown = folders.shown[folders.own or folders.base]
    return [name for name in folders.files if Path(name).is_relative_to(shown)]


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
        if not alone.is_unfit or self._fits_an_experiment(word):
            return True
        groups = self.by_group.keys() - NOT_OF_A_RUN - {_group(word)}
        others = [other for group, words in self.by_group.items() if group in groups for other in words]
        found = {other: self.variant(word, other) for other in others}
        firsts = [other for other, variant in found.items() if _reasons(variant) != _reasons(alone)]
        pairs = (pair for pair in product(firsts, others) if len({*map(_group, pair)}) == len(pair))
        return any(variant.plan is not None for variant in found.values()) or any(
            self.variant(word, *pair).plan is not None for pair in pairs
        )

    def _fits_an_experiment(self, word: str) -> bool:
        bases = {*self.variant(word).files} - {*self.default.files}
        experiments = [f"experiment={name}" for name in self.files.options("experiment")]
        having = [each for each in experiments if bases & {*self.variant(each).files}]
        return any(self.variant(each, word).plan is not None for each in having)


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
    for word in options.own:
        if word in lost:
            faults = options.variant(word).faults
            checked.add(replace(fault, configs=(word,)) for fault in faults)
    for words, variant in checked.configs.items():
        if _is_free(words) and variant.is_unfit and lost.isdisjoint(words):
            alone = [_reasons(options.variant(word)) for word in words[1:] + words[:1]] if words[1:] else []
            if _reasons(variant) not in alone:
                checked.refused[words] = variant.faults[0]


def _reasons(variant: Variant) -> list[tuple[str, str]]:
    return [(fault.found, fault.expected) for fault in variant.faults]


def _judge_evidence(checked: Checked, files: Composer, folders: Folders, own: list[str]) -> None:
    """Collect what is out of date in the evidence of experiments that were tuned."""
    for name in own:
        experiment = Path(name).stem
        variant = checked.configs.get((f"experiment={experiment}",))
        if Path(name).parent.name != "experiment" or variant is None or variant.plan is None:
            continue
        try:
            found = evidence_in(folders.files[name].decode(errors="replace"), name)
        except ConfigError as error:
            checked.add(error.faults)
            continue
        if found is not None:
            number, evidence = found
            checked.add(out_of_date(evidence, experiment, (name, number), files))
            if not evidence.is_from_here:
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
