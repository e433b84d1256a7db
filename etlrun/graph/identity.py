"""Identity of the examples at a point of a pipeline: all that determines them.

Two pipelines with the same identity give the same examples in the same order. Parameters of speed are not part of it.
`PARTS` lists all: keys of caches, and the caches that a change of a plan invalidates, are derived from it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.version import Version

from etlrun.planning.plan import Plan, PlannedStage, at_cache, data_values, values_of
from etlrun.stages.dataset import Dataset
from etlrun.stages.model import Backbone
from etlrun.stages.plugins import digest_of
from etlrun.stages.trainer import Trainer
from etlrun.system import VERSION
from etlrun.system.loading import version_of
from etlrun.system.values import Block

if TYPE_CHECKING:
    from etlrun.cache.store import Identity
    from etlrun.graph.context import Reading

_FORMAT = 3
"""Version of the file format of caches, and of the code that reads and parses examples."""
_FRAMEWORKS = {"tensorflow": "tensorflow", "tensorflow-datasets": "tensorflow_datasets"}
"""Modules of the packages that a run imports, but a key does not need to."""

Stages = Sequence[PlannedStage]


class IdentityPart(NamedTuple):
    """A part of what determines the examples at a point of a pipeline, from the stages before it.

    Attributes:
        title: What it is, as the docs list it.
        found: Its names and values in a key.
        planned: The values of a plan that determine it, by dotted path, for a pipeline; empty if no config does.
    """

    title: str
    found: Callable[[Stages, Reading], Iterable[list[Any]]]
    planned: Callable[[Stages, Plan, str], Block] = lambda *_: {}


def identity(before: Stages, reading: Reading) -> Identity:
    """Return the identity of the output of the stages `before`: pairs of a name and a value, from all `PARTS`."""
    return [pair for part in PARTS for pair in part.found(before, reading)]


def planned(plan: Plan, name: str) -> Block:
    """Return the values of a plan that determine what the cache of a pipeline holds, by dotted path; none without."""
    before, _, _ = at_cache(plan.pipelines[name])
    return {key: value for part in PARTS if before for key, value in part.planned(before, plan, name).items()}


def _dataset(_: Stages, reading: Reading) -> Identity:
    source, dataset = reading.source, reading.source.dataset
    declared = dataset.examples.features
    features = [[f"dataset.features.{name}", [key, str(declared[name])]] for name, key in dataset.keys.items()]
    return [["dataset", source.identity], *features, ["dataset.classes", source.num_classes]]


def _planned_dataset(_: Stages, plan: Plan, name: str) -> Block:
    splits = [Dataset.key(of) for of in ("split", "eval_split", "eval_splits")]
    return {key: value for key, value in data_values(plan.spec.dataset.read_by(name), "").items() if key not in splits}


def _stages(before: Stages, reading: Reading) -> Identity:
    values = values_of(before, shards=len(reading.split.shards))
    return [[name, list(value) if isinstance(value, tuple) else value] for name, value in values.items()]


def _planned_stages(before: Stages, *_: Any) -> Block:
    values = values_of(before)
    return {"the steps before it": values.pop("stages"), **values}


def _seed(before: Stages, reading: Reading) -> Identity:
    return [["seed", reading.seed]] if _is_shuffled(before, reading) else []


def _planned_seed(before: Stages, plan: Plan, _: str) -> Block:
    return {Trainer.key("seed"): plan.spec.trainer.seed} if any(planned.is_random for planned in before) else {}


def _records(before: Stages, reading: Reading) -> Identity:
    # A damaged record is skipped, although its checksum doesn't show the damage.
    whole = any(planned.stage.leaves_out for planned in before)
    return [[f"file {name}", held] for name, held in reading.split.content.files(whole=whole)]


def _planned_features(before: Stages, plan: Plan, _: str) -> Block:
    if not any(planned.stage.path == Backbone.path for planned in before):
        return {}
    names = ("mixed_precision", "device", *(("seed",) if plan.spec.model.weights is None else ()))
    values = {Trainer.key(name): getattr(plan.spec.trainer, name, None) for name in names}
    return data_values(plan.spec.model, "") | values


def _is_shuffled(before: Stages, reading: Reading) -> bool:
    return len(reading.split.shards) > 1 and any(planned.is_random for planned in before)


def _code(before: Stages, reading: Reading) -> Identity:
    """Return the code that makes the examples. TensorFlow is included only if it decodes, computes or shuffles."""
    stages = [inner.stage for outer in before for inner in (outer, *(() if outer.stage.does_steps else outer.steps))]
    code = [[f"code {stage.path}", digest_of(stage.makers)] for stage in stages if stage.makers]
    packages = {package for stage in stages for package in stage.rests_on}
    packages |= {"tensorflow"} if _is_shuffled(before, reading) else set()
    return [["etlrun", VERSION], *code, *([package, _version(package)] for package in sorted(packages))]


def _planned_code(before: Stages, plan: Plan, _: str) -> Block:
    steps = [step.stage.path for planned in before for step in planned.steps]
    return {f"code of {step}": plan.code[step] for step in steps if step in plan.code}


def _version(package: str) -> str:
    """Return the version of a package; of an imported framework its own, since it may have been updated on disk."""
    name = _FRAMEWORKS.get(package)
    if name is None:
        return version_of(package)
    try:
        found = sys.modules[name].__version__ if name in sys.modules else version_of(package)
    except metadata.PackageNotFoundError:  # installed under a name that is not known
        found = importlib.import_module(name).__version__
    return Version(found).public  # as both spell it: 2.21.0-rc1 is 2.21.0rc1, and a vendor's 2.21.0+nv is 2.21.0


PARTS = (
    IdentityPart("the format of the files", lambda *_: [["format", _FORMAT]]),
    IdentityPart("the dataset, the types of its features, and its classes", _dataset, _planned_dataset),
    IdentityPart(
        "the stages before it, and their parameters that change the data or the order, not parallelism or buffers",
        _stages,
        _planned_stages,
    ),
    IdentityPart("the seed, if the shards are shuffled: nothing else before a cache is random", _seed, _planned_seed),
    IdentityPart(
        "the records that are read, by their checksums",
        _records,
        lambda _, plan, name: {plan.spec.dataset.key_of(name): plan.spec.dataset.splits.get(name)},
    ),
    IdentityPart(
        "for features, the weights of the base and what computes them: precision, Keras, backend and device",
        lambda _, reading: [] if reading.backbone is None else reading.backbone.identity,
        _planned_features,
    ),
    IdentityPart(
        "the type of what is kept",
        lambda before, _: [["kept", str(before[-1].gives)]],
        lambda before, plan, _: {plan.spec.cache.key("at"): str(before[-1].gives)},
    ),
    IdentityPart(
        "the source of the steps, and the versions of etlrun, TensorFlow and the decoders", _code, _planned_code
    ),
)
"""All that a cache rests on, in the order in which the first difference is named."""
