"""Suggestions for unknown keys: the key that was probably meant."""

import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from etlrun.stages import Stages
from etlrun.stages.base import Kind, Stage, field_metadata, hints_of, selected
from etlrun.stages.dataset import SOURCES, TfdsDataset, dataset_type
from etlrun.stages.installed import lacking
from etlrun.stages.load import Load
from etlrun.stages.measure import Measure
from etlrun.stages.plugins import OF_YOUR_OWN
from etlrun.stages.step import Map
from etlrun.stages.sweep import Sweep, Tune
from etlrun.system.errors import did_you_mean, likeliest, override
from etlrun.system.values import Composed


def listed_stage(annotation: Any) -> type[Stage] | None:
    """Return the type of the stages that a field holds a list of; None if it holds none."""
    args = typing.get_args(annotation)
    if not args:
        return None
    if typing.get_origin(annotation) is tuple:
        return args[0] if isinstance(args[0], type) and issubclass(args[0], Stage) else None
    return next(filter(None, map(listed_stage, args)), None)


def nested_stage(annotation: Any) -> type[Stage] | None:
    """Return the type of the stage that a field holds, which may be optional; None if it holds none."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Stage) else None
    args = () if typing.get_origin(annotation) is tuple else typing.get_args(annotation)
    return next(filter(None, map(nested_stage, args)), None)


def summary_of(*stages: type[Stage]) -> str:
    """Return the first sentence of the docstring of each stage."""
    return " ".join((inspect.getdoc(stage) or "").partition("\n\n")[0].replace("\n", " ") for stage in stages)


def attributes_of(documented: type[Any]) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say of its attributes."""
    found: dict[str, str] = {}
    for base in reversed(documented.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")[2]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            found[name] = " ".join(text.split())
    return found


Options = Mapping[str, type[Stage]]
"""Kinds of stages by the options that choose them."""
DATASETS: Options = {"tfds": TfdsDataset, **SOURCES}
"""All kinds of datasets, by the options that choose them."""
OF_EXPERIMENT = "begin the file of the experiment with the line `# @package _global_`"
"""The remedy for keys of an experiment, whose file sets the keys of other groups."""
INSTALL = "install the project of this folder, which adds it: pip install -e ."
"""Remedy for what the pyproject.toml of the current folder adds."""
_PROGRAM = "for an optimizer of your own, print the program of a run, and change it: etlrun config eject > program.py"
_OTHERWISE = {
    "dataset": "own images are read by dataset=folder dataset.dir=FOLDER, tables by dataset=table, arrays of NumPy by "
    "dataset=arrays, datasets of TFDS by dataset=tfds dataset.name=NAME, and TFRecord files by dataset=tfrecord",
    "dataset.name": OF_YOUR_OWN.format("a dataset", "class"),
    "model": OF_YOUR_OWN.format("a model", "class"),
    "model.name": OF_YOUR_OWN.format("a model", "class"),
    "trainer.callbacks": OF_YOUR_OWN.format("a callback", "function"),
    "trainer.loss": OF_YOUR_OWN.format("a loss", "function"),
    "trainer.metrics": OF_YOUR_OWN.format("a metric", "function"),
    "trainer.optimizer": _PROGRAM,
    "transform.steps": OF_YOUR_OWN.format("a step", "class"),
    "transform.eval_steps": OF_YOUR_OWN.format("a step", "class"),
}
"""What is done for what no option has, by dotted keys."""
RENAMED = {
    "transform.decode.scaled": "transform.decode.fast",
    "logger.experiment": "logger.experiment_name",
    "sweep.vary_seed": "sweep.vary=[seed]",
}
"""Dotted keys that have another name now: old to new."""


@dataclass(frozen=True)
class KnownKey:
    """A key that a config may have.

    Attributes:
        path: Dotted path.
        needs: Option that has to be chosen for the key to exist; empty if none.
        kinds: What it can change in a run.
    """

    path: str
    needs: str = ""
    kinds: tuple[Kind, ...] = ()

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]


def hint(path: str, config: Composed, stages: Stages) -> str:
    """Return the remedy for the unknown key `path`: the key that was meant, if one is really near, or to remove it."""
    if path == "experiment":
        return OF_EXPERIMENT
    if path in RENAMED:
        return f"write `{RENAMED[path]}`, its name now"
    if path.rpartition(".")[2] in lacking():
        return INSTALL
    keys = meant(path, config, stages)
    if keys and keys[0].path == path:
        return f"choose {' or '.join(dict.fromkeys(key.needs for key in keys))}, which has it"
    texts = dict.fromkeys(f"`{key.path}`{f' with {key.needs}' if key.needs else ''}" for key in keys)
    return f"did you mean {' or '.join(texts)}?" if texts else "remove it"


def meant(path: str, config: Composed, stages: Stages) -> list[KnownKey]:
    """Return the keys meant by `path`: itself in another option, or those in its group of such a name or letters."""
    known, (block, _, name) = list(_known(config, stages)), path.rpartition(".")
    if exact := [key for key in known if key.path == path]:
        return exact
    group = f"{block.partition('.')[0]}." * bool(block)
    near = sorted(
        (key for key in known if key.path.startswith(group)), key=lambda key: key.path.rpartition(".")[0] != block
    )
    here = [key for key in near if not key.needs]
    close = likeliest(name, [key.name for key in here], cutoff=0.8)
    initials = [key for key in here if name[1:] and "".join(of[:1] for of in key.name.split("_")) == name]
    same = [[key for key in keys if key.name == name] for keys in (here, near)]
    swapped = [key for key in here if sorted(key.name) == sorted(name)]
    return same[0] or same[1] or initials or swapped[:1] or [key for key in here if key.name == close][:1]


def of_name(key: str, name: object, known: Iterable[str]) -> str:
    """Return a remedy for an unknown name of a stage: the one that was probably meant, or what to do instead."""
    if str(name) in lacking():
        return INSTALL
    return did_you_mean(str(name), known, otherwise=_OTHERWISE.get(key, ""), cutoff=0.6)


def of_value(key: str, value: object, expected: str) -> str:
    """Return the same for a value, or the first of a list, of another form, or not among those that a text names."""
    name = value[0] if isinstance(value, list) and value else value
    if key == "dataset.target" and not (isinstance(name, Mapping) or str(name).startswith("{")):
        column = override(key, name, "number") if isinstance(name, str) else "'dataset.target={COLUMN: number}'"
        return f"write {column}, or class in place of number if it names classes"
    if key in ("dataset.inputs", "dataset.exclude") and isinstance(name, str):
        return f"write {key}=[{name}]"
    names = [word for word in re.findall(r"\w{3,}", expected) if word.islower()]
    if key not in _OTHERWISE or not isinstance(name, str) or any(other in name for other in names):
        return ""
    return did_you_mean(name, names, otherwise=_OTHERWISE[key], cutoff=0.85)


def of_option(group: str, word: str, remedy: str) -> str:
    """Return the remedy for an unknown option of a group: `remedy` if it fits, or what to do instead."""
    other_number = rf"dataset={re.sub('[0-9]+', '[0-9]*', re.escape(word))}\?"
    if re.search(other_number, remedy):  # CIFAR-100 is not CIFAR-10 misspelt
        return f"for a dataset of TFDS write dataset=tfds dataset.name={word}"
    return remedy or _OTHERWISE.get(group, "")


def of_reference(path: str, stages: Stages) -> str:
    """Return a remedy for a reference to an unknown key: the one that was probably meant; empty if nothing is close."""
    if path in RENAMED:
        return f"write `${{{RENAMED[path]}}}`, its name now"
    return did_you_mean(path, [key.path for key in _known({}, stages)], "`${{{}}}`", cutoff=0.8)


def is_key(name: str, stages: Stages) -> bool:
    """Return whether the last part of some key is `name`."""
    return any(key.name == name for key in _known({}, stages))


def kinds_of(key: str, config: Composed, stages: Stages) -> set[Kind]:
    """Return what a dotted key, or a block or a group with all of its keys, can change in a config."""
    known = [of for of in _known(config, stages) if not of.needs]
    return {kind for of in known if f"{of.path}.".startswith(f"{key}.") for kind in of.kinds}


def _known(config: Composed, stages: Stages) -> Iterator[KnownKey]:
    """Yield all keys in the order of the groups; those of a sweep or of `tune` need that command."""
    blocks = {group: of for group, of in config.items() if isinstance(of, Mapping)}
    yield from (*_fields("load", Load), *_fields("measure", Measure))
    for group, options in {"dataset": DATASETS, **stages, "transform": {}}.items():
        name = blocks.get(group, {}).get("name")
        chosen = dataset_type(name) if group == "dataset" else options.get(selected(options, name) or "")
        yield from [KnownKey(group)] * bool(options)
        for option, stage_type in options.items():
            needs = f"{group}={option}" * (stage_type is not chosen)
            yield from (replace(key, needs=needs) for key in _fields(group, stage_type)[1:])
    lists = [blocks.get("transform", {}).get(name) for name in ("steps", "eval_steps")]
    listed = [name for names in lists if isinstance(names, list | tuple) for name in names]
    for name, stage_type in stages.get("transform", {}).items():
        whole, *keys = _fields(f"transform.{name}", stage_type)
        needs = f"`{name}` in transform.steps" * (name not in listed)
        yield from (whole, *(replace(key, needs=needs) for key in keys))
    if "transform" in stages:
        yield from (key for key in _fields("transform", Map) if key.name not in ("steps", "at_once"))
        yield from (KnownKey(f"transform.{name}") for name in ("steps", "eval_steps"))
    for group, stage_type, command in (("sweep", Sweep, "-m"), ("tune", Tune, "the command tune")):
        yield from (replace(key, needs=command * (group not in config)) for key in _fields(group, stage_type))


def _fields(path: str, stage_type: type[Stage]) -> list[KnownKey]:
    """Return the block of a stage and its keys."""
    found = [KnownKey(path)]
    for name, of in field_metadata(stage_type).items():
        block, kinds = nested_stage(hints_of(stage_type)[name]), tuple(kind for kind in of if isinstance(kind, Kind))
        found += [KnownKey(f"{path}.{name}", kinds=kinds)] if block is None else _fields(f"{path}.{name}", block)
    return found
