"""Check of all configs in a folder: each experiment, and each option with the options of adjacent groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path

from etlrun.config import request as requests
from etlrun.config.composer import MISSING, Composer
from etlrun.config.files import config_files, unloadable
from etlrun.plan.plan import Plan
from etlrun.plan.unused import leaves
from etlrun.review.evidence import evidence_in, out_of_date
from etlrun.review.folders import Folders
from etlrun.review.lines import Entry, entries, located
from etlrun.review.sides import DEFAULT, Variant, composed, hidden, named_default
from etlrun.system.errors import ConfigError, Fault

Words = tuple[str, ...]

_STAND_INS: dict[str, object] = {"dataset.dir": ".", "dataset.files": "*.tfrecord", "dataset.num_classes": 2}
"""Values for mandatory keys (`???`) that the default config doesn't have."""


@dataclass(kw_only=True)
class Checked:
    """Result of a check.

    Attributes:
        configs: All composed configs, by their overrides or the name of their primary config.
        plans: Plans of the valid experiments and of the default run, by name.
        experiments: Names of all experiments, including invalid ones.
        refused: Options that are incompatible with each other but valid with others, with the reason.
        tuned: Machines that experiments were tuned on, if it is not this one, by their names.
        faults: Faults by their text.
    """

    configs: dict[Words, Variant] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    experiments: list[str] = field(default_factory=list)
    refused: dict[Words, Fault] = field(default_factory=dict)
    tuned: dict[str, str] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)

    def add(self, faults: Iterable[Fault]) -> None:
        """Add faults, each once."""
        self.faults |= {str(fault): fault for fault in faults}


def check(folders: Folders) -> Checked:
    """Check the configs of `folders`: the user's own if given, else the project's."""
    checked = Checked()
    own = _own(folders)
    try:
        with requests.composer(folders.request([])) as files:
            _compose_all(checked, files, folders, own)
            _judge_evidence(checked, files, folders, own)
        for name in _primaries(folders):
            with requests.composer(folders.request([], name)) as files:
                checked.configs[(f"--config-name={name}",)] = composed([], files, folders)
    except ConfigError as error:  # in a file that every config needs
        checked.add(located(fault, (), folders, ()) for fault in error.faults)
    broken = [fault for name in own if (fault := _broken(folders.paths[name], name)) is not None]
    checked.faults = {str(fault): fault for fault in broken} | checked.faults
    _judge(checked)
    checked.add(_other_suffixes(folders))
    checked.add(_without_header(folders, own))
    if not broken:  # which files a broken one uses is unknown
        checked.add(_unreached(checked, folders, own))
        checked.add(_never_counting(checked, folders, own))
    return checked


def _broken(path: Path, name: str) -> Fault | None:
    """Return the fault of a file that cannot be loaded; None if it can."""
    if path.as_posix().isprintable():
        return unloadable(path, name)
    return Fault(
        where=name, found="a name with unprintable characters", expected="a printable name", remedy="rename it"
    )


def _own(folders: Folders) -> list[str]:
    """Return the files to check."""
    shown = folders.shown[folders.own or folders.base]
    return [name for name in folders.files if Path(name).is_relative_to(shown)]


def _primaries(folders: Folders) -> list[str]:
    """Return the user's primary configs: the files at the top of their folder."""
    return [path.stem for path in folders.paths.values() if path.parent == folders.own]


def _compose_all(checked: Checked, files: Composer, folders: Folders, own: list[str]) -> None:
    default = composed([], files, folders)
    given = _STAND_INS | dict(leaves("", default.config or {}))
    named = {Path(name).with_suffix("").as_posix() for name in own}
    shown = folders.shown[folders.own or folders.base]

    def is_own(word: str) -> bool:
        return (Path(shown) / word.replace("=", "/")).as_posix() in named

    checked.experiments = [name for name in files.options("experiment") if is_own(f"experiment={name}")]
    if DEFAULT in checked.experiments:
        checked.experiments.remove(DEFAULT)
        checked.add([named_default(folders)])
    words: list[Words] = [(f"experiment={name}",) for name in checked.experiments]
    groups = [group for group in files.groups() if group != "experiment"]
    options = {group: [f"{group}={option}" for option in files.options(group)] for group in groups}
    words += [(option,) for listed in options.values() for option in listed if is_own(option)]
    for one, other in pairwise(groups):
        words += [pair for pair in product(options[one], options[other]) if any(map(is_own, pair))]
    if folders.own is None:
        checked.experiments.insert(0, DEFAULT)
        checked.configs[()] = default
    for overrides in words:
        checked.configs[overrides] = composed(list(overrides), files, folders, given)


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
            checked.add(out_of_date(evidence, experiment, f"{name}:{number}", files))
            if not evidence.is_from_here:
                checked.tuned[experiment] = evidence.machine


def _is_free(words: Words) -> bool:
    """Return whether these are replaceable options, not a whole run."""
    return bool(words) and not words[0].startswith(("experiment=", "--config-name="))


def _judge(checked: Checked) -> None:
    """Collect the faults of whole runs, and of options that fit no option of the adjacent groups."""
    met: dict[str, tuple[Fault, list[str]]] = {}
    fitting = {word for words, variant in checked.configs.items() if variant.plan is not None for word in words}
    broken = {words for words, variant in checked.configs.items() if variant.config is None}
    for words, variant in checked.configs.items():
        if words[1:] and any((word,) in broken for word in words):
            continue  # an option that fails alone fails with every other one, and is reported once
        name = DEFAULT if not words else words[0].removeprefix("experiment=")
        if variant.plan is not None and name in checked.experiments:
            checked.plans[name] = variant.plan
        if variant.plan is None and _is_free(words) and all(word in fitting for word in words):
            alone = [checked.configs[(word,)].faults for word in words[1:] + words[:1] if (word,) in checked.configs]
            if len(words) == 1 or variant.faults not in alone:
                checked.refused[words] = variant.faults[0]
            continue
        for fault in variant.faults:
            if str(fault) not in checked.faults:  # as are the faults of files
                met.setdefault(str(fault), (fault, []))[1].append(" ".join(words) or "the default run")
    for fault, places in met.values():
        more = f" and {len(places) - 1} more" if places[1:] else ""
        checked.add([replace(fault, where=f"{fault.where}, in {places[0]}{more}")])


def _unreached(checked: Checked, folders: Folders, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of files that no config uses."""
    reached = {name for variant in checked.configs.values() for name in variant.files}
    shown = Path(folders.shown[folders.own or folders.base])
    names = {name: Path(name).relative_to(shown) for name in own} if folders.own is not None else {}
    concealed = [name for name, inner in names.items() if (folders.base / inner).is_file()]
    yield from map(hidden, concealed)
    reached |= {*concealed, (shown / "experiment" / f"{DEFAULT}.yaml").as_posix()}
    reached |= {name for name, inner in names.items() if inner.parts[0] == "hydra"}
    reached |= {f"{(shown / word.replace('=', '/')).as_posix()}.yaml" for words in checked.configs for word in words}
    for name in own:
        if name not in reached:
            yield Fault(
                where=name,
                found="a file that no config uses",
                expected="an option of a group in a defaults list",
                remedy="move it to the folder of its group, or delete it",
            )


def _other_suffixes(folders: Folders) -> Iterator[Fault]:
    """Yield the faults of files that look like configs but have another suffix."""
    for path in config_files(folders.own or folders.base, ".yml"):
        yield Fault(
            where=folders.name(path), found="the suffix .yml", expected=".yaml, the only suffix that Hydra reads"
        )


def _never_counting(checked: Checked, folders: Folders, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of values that a later file overrides in every config."""
    known: dict[tuple[str, str], list[Entry]] = {}
    counting: set[Entry] = set()
    beaten: dict[Entry, Entry] = {}
    for variant in checked.configs.values():
        last: dict[str, Entry] = {}
        for layer in variant.layers:
            name = folders.name(layer.path)
            if (name, layer.package) not in known:
                known[name, layer.package] = _values(folders.files, name, layer.package)
            for entry in known[name, layer.package]:
                if entry.key in last:
                    beaten[last[entry.key]] = entry
                last[entry.key] = entry
        counting |= set(last.values())
    for entry, by in beaten.items():
        if entry not in counting and entry.file in own:
            yield Fault(
                where=f"{entry.file}:{entry.line}: {entry.key}",
                found="a value that has no effect",
                expected=f"a value that {by.file}:{by.line} does not override in every config",
                remedy="remove it, or put `_self_` last in its defaults list",
            )


def _values(files: Mapping[str, bytes], name: str, package: str) -> list[Entry]:
    """Return the innermost keys of a file, without mandatory values (`???`)."""
    found = entries(files.get(name, b""), package, name)
    lines = files.get(name, b"").decode(errors="replace").splitlines()
    outer = {entry.key.rpartition(".")[0] for entry in found}
    return [entry for entry in found if entry.key not in outer and MISSING not in lines[entry.line - 1]]


def _without_header(folders: Folders, own: list[str]) -> Iterator[Fault]:
    """Yield the faults of experiments that do not begin with a comment."""
    for name in own:
        if Path(name).parent.name != "experiment":
            continue
        head = []
        for line in folders.files[name].decode(errors="replace").splitlines():
            if not line.startswith("#"):
                break
            head.append(line)
        if not [line for line in head if line.strip("# ") and not line.startswith("# @package")]:
            yield Fault(
                where=f"{name}:1",
                found="no comment at the top",
                expected="a comment with the purpose, the command and the cost of the experiment",
                remedy="add it below `# @package _global_`",
            )
