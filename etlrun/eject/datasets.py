"""Text of the stages of a pipeline in a program: expressions from dataset to dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from etlrun.eject.steps import given, lines_of, source_of, taken, unpacked, variables
from etlrun.eject.text import call, function, literal, mapping, parallel, quoted
from etlrun.plan.plan import Plan, PlannedStage, keeps_file_order, reads_features
from etlrun.stages.base import Scope
from etlrun.stages.cache import DiskCache
from etlrun.stages.call import Call, Constant, Parallel, PassSeed, UpToAll
from etlrun.stages.extract import Interleave, Sequential, Tfds
from etlrun.stages.flow import Flow
from etlrun.stages.image import Decode
from etlrun.stages.model import Backbone
from etlrun.stages.skip import SkipCorrupt
from etlrun.stages.step import AfterCache, Map


@dataclass(frozen=True, kw_only=True)
class Place:
    """A stage of a program.

    Attributes:
        plan: Plan of the run.
        pipeline: `train` or `validation`.
        planned: The stage with its steps.
        incoming: Input of the stage.
        dataset: Expression of the input.
    """

    plan: Plan
    pipeline: str
    planned: PlannedStage
    incoming: Flow
    dataset: str


@dataclass(frozen=True, kw_only=True)
class Expression:
    """Text of a stage in a program.

    Attributes:
        text: Expression of the dataset.
        functions: Functions that the expression needs.
    """

    text: str
    functions: tuple[str, ...] = ()


FIRST_SEED = "1 + SEED * 1_000_003"
"""Seed of the first pass."""
_READ = "read(split: str) -> tf.data.Dataset"
_RECORDS = function(
    "records(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset",
    "Read `take` records of a shard, after the first `skip`; a `take` of -1 means all.",
    "return tf.data.TFRecordDataset(path).skip(skip).take(take)",
)


_DECODED = function(
    "decoded(image: tf.Tensor, _feature: tfds.features.Image) -> tf.Tensor",
    "Decode to three channels of uint8, whatever the feature declares.",
    "return decode(image)",
)


def _read(place: Place, says: str, result: str) -> tuple[str, ...]:
    """Return the function that reads both pipelines; a pipeline that shuffles the shards passes a seed."""
    is_shuffled = place.plan.spec.extract.random
    shuffled = (
        "if seed is not None:",
        "    shards = shards.shuffle(len(parts), seed=seed, reshuffle_each_iteration=False)",
    )
    body = (
        "parts = builder().info.splits[split].file_instructions",
        "shards = tf.data.Dataset.from_tensor_slices(",
        "    (",
        "        [str(part.filename) for part in parts],",
        "        tf.constant([part.skip for part in parts], tf.int64),",
        "        tf.constant([part.take for part in parts], tf.int64),",
        "    )",
        ")",
        *(shuffled if is_shuffled else ()),
        f"return {result}",
    )
    signature = "read(split: str, seed: int | tf.Tensor | None = None) -> tf.data.Dataset" if is_shuffled else _READ
    return _RECORDS, function(signature, says, *body)


def tfds(stage: Tfds, place: Place) -> Expression:
    """Return the text of reading with TFDS, without its own cache."""
    dataset = place.plan.spec.dataset
    features = {key: dataset.examples.features[name] for name, key in dataset.keys.items()}
    decoder = "tfds.decode.make_decoder(tf.uint8)(decoded)()" if stage.decode else "tfds.decode.SkipDecoding()"
    decoders = [f"{quoted(key)}: {decoder}" for key, feature in features.items() if feature.format == "image"]
    wanted = [mapping("", {quoted(key): "True" for key in features})]
    wanted += [f"decoders={{{', '.join(decoders)}}}"] if decoders else []
    load = call(
        "return builder().as_dataset",
        "split=split",
        "decoders=" + call("tfds.decode.PartialDecoding", *wanted),
        "read_config=tfds.ReadConfig(try_autocache=False, assert_cardinality=False)",
    )
    images = f"; images are {'decoded' if stage.decode else 'still encoded'}" if decoders else ""
    says = f"Read the features of the examples of `split`, as `tfds.load` does{images}."
    read = function(_READ, says, load)
    return Expression(
        text=_of_split(place), functions=(source_of(Decode()), _DECODED, read) if stage.decode else (read,)
    )


def _of_split(place: Place) -> str:
    """Return the call that reads a split in the order of the shards' names, of the pass, or of a cache's first pass."""
    split = f"{place.pipeline.upper()}_SPLIT"
    if not place.planned.is_random:
        return f"read({split})"
    return f"read({split}, seed={FIRST_SEED if keeps_file_order(place.plan.spec) else 'seed'})"


def _in_order(place: Place) -> str:
    return "; a `seed` shuffles the shards" if place.plan.spec.extract.random else ""


def sequential(_stage: Sequential, place: Place) -> Expression:
    """Return the text of reading shard by shard."""
    says = f"Read serialised examples, one shard after the other{_in_order(place)}."
    return Expression(text=_of_split(place), functions=_read(place, says, "shards.flat_map(records)"))


def interleave(stage: Interleave, place: Place) -> Expression:
    """Return the text of reading shards in turn; after an error, the number of parallel calls decides which is next."""
    block = "one" if stage.block_length == 1 else str(stage.block_length)
    turns = f"{block} from each of {stage.cycle_length} shards in turn"
    says = f"Read serialised examples, {turns}{_in_order(place)}."
    least = 1 if place.plan.spec.dataset.on_corrupt == "skip" else None
    cycle = "len(parts)" if stage.cycle_length == "all" else str(stage.cycle_length)
    calls = _calls(stage.num_parallel_calls or least, deterministic=stage.deterministic, most=cycle)
    sizes = f"cycle_length={cycle}", f"block_length={stage.block_length}"
    return Expression(
        text=_of_split(place), functions=_read(place, says, call("shards.interleave", "records", *sizes, *calls))
    )


def _calls(num_parallel_calls: int | str | None, *, deterministic: bool, most: str = "") -> tuple[str, ...]:
    """Return the arguments for parallel calls; `most` is tf.data's limit, if the config's number may exceed it."""
    if num_parallel_calls is None:
        return ()
    calls = parallel(num_parallel_calls)
    if most and num_parallel_calls != "autotune" and not (calls.isdigit() and most.isdigit()):
        calls = f"min({calls}, {most})"
    return f"num_parallel_calls={calls}", f"deterministic={deterministic}"


def map_steps(stage: Map, place: Place) -> Expression:
    """Return the text of all steps in one function, which also raises on a target that is not a class."""
    name, dataset = _name(place), place.plan.spec.dataset
    flow, takes = dataset.examples, _taken(place)
    lines = [*(unpacked(dataset) if "features" in takes else ()), *(taken(flow) if "inputs" in takes else ())]
    for step in stage.steps:
        lines += lines_of(step, dataset)
    ops = dict.fromkeys(source_of(step) for step in stage.steps if not step.parses)
    target = variables(flow)[flow.target]
    if flow.features[flow.target].is_class and stage.scope is Scope.ONCE:
        checked = f"tf.gather(tf.range(num_classes(), dtype=tf.int64), {target})"
        lines.append(f"{target} = {checked}  # an error unless it is a class")
    arguments = takes | ({"seed": "tf.Tensor"} if place.planned.is_random else {})
    typed = ", ".join(f"{argument}: {kind}" for argument, kind in arguments.items())
    mapped = name if arguments == takes else f"lambda {', '.join(takes)}: {name}({', '.join(arguments)})"
    inputs = "dict[str, tf.Tensor]" if len(flow.inputs) > 1 else "tf.Tensor"
    says = f"Map {place.incoming} to {place.planned.gives}."
    calls = _calls(stage.num_parallel_calls, deterministic=stage.deterministic)
    return Expression(
        text=call(f"{place.dataset}.map", mapped, *calls),
        functions=(
            *ops,
            function(f"{name}({typed}) -> tuple[{inputs}, tf.Tensor]", says, *lines, *given(flow)),
        ),
    )


def _taken(place: Place) -> dict[str, str]:
    """Return the arguments of the steps' function, with their types."""
    if place.planned.stage.scope is Scope.ONCE:
        return {"record": "tf.Tensor"} if place.incoming.is_serialised else {"features": "dict[str, tf.Tensor]"}
    flow, names = place.incoming, variables(place.incoming)
    inputs = {"inputs": "dict[str, tf.Tensor]"} if len(flow.inputs) > 1 else {names[flow.inputs[0]]: "tf.Tensor"}
    return inputs | {names[flow.target]: "tf.Tensor"}


def _name(place: Place) -> str:
    """Return the name of the steps' function: the same for both pipelines if their steps are the same."""
    name = "transform" if place.planned.stage.scope is Scope.ONCE else "transform_cached"
    same = not place.plan.evaluation or all(place.planned in stages for stages in place.plan.pipelines.values())
    return name if same else f"{name}_for_{place.pipeline}"


def skip_corrupt(_stage: SkipCorrupt, place: Place) -> Expression:
    """Return the text of dropping elements that raise; a file that can't be opened is an error at the end of a pass."""
    return Expression(
        text=f"without_broken({place.dataset}, {place.pipeline.upper()}_SPLIT)",
        functions=(
            function(
                "without_broken(dataset: tf.data.Dataset, split: str) -> tf.data.Dataset",
                "Drop elements that raise; a file of `split` that can't be opened is an error at the end.",
                "part = builder().info.splits[split]",
                "tries = tf.data.Dataset.range(part.num_examples)  # such a file raises on every read",
                "kept = tf.data.Dataset.zip((tries, dataset)).ignore_errors().map(lambda _, example: example)",
                "paths = [str(instruction.filename) for instruction in part.file_instructions]",
                "files = tf.data.Dataset.from_tensor_slices(paths)",
                "opened = files.flat_map(lambda path: tf.data.FixedLengthRecordDataset(path, 1).take(1))",
                "return kept.concatenate(opened.flat_map(lambda _: dataset.take(0)))",
            ),
        ),
    )


def backbone(stage: Backbone, place: Place) -> Expression:
    """Return the text of computing features before the first epoch, which makes a cache unnecessary."""
    is_mixed = place.plan.spec.fit is not None and place.plan.spec.fit.mixed_precision is not None
    computed = "compute(images, training=False)"
    features = f"tf.cast({computed}, tf.float32)" if is_mixed else computed
    return Expression(
        text=f"features_of(base, {place.dataset})",
        functions=(
            function(
                "features_of(base: keras.Model, dataset: tf.data.Dataset) -> tf.data.Dataset",
                "Return (features, label) of each image: the output of the frozen `base`, computed once and in memory.",
                "compute = tf.function(base, reduce_retracing=True)",
                f"batches = [({features}, labels) for images, labels in dataset.batch({stage.pictures_at_once})]",
                "kept, labels = (tf.concat(column, axis=0) for column in zip(*batches, strict=True))",
                "return tf.data.Dataset.from_tensor_slices((kept, labels))",
            ),
        ),
    )


def cache_disk(stage: DiskCache, place: Place) -> Expression:
    """Return the text of tf.data's cache, in a folder for one process: it can't tell if it is stale or in use."""
    own = ('folder = tempfile.mkdtemp(prefix="pipeline_")',)
    given = (
        "pathlib.Path(CACHE_DIR).mkdir(parents=True, exist_ok=True)",
        'folder = tempfile.mkdtemp(prefix="pipeline_", dir=CACHE_DIR)',
    )
    folder = function(
        "cache_folder() -> str",
        "Make a folder for this process alone: tf.data can't tell if a cache is stale, broken or in use.",
        *(given if stage.dir else own),
        "atexit.register(shutil.rmtree, folder, ignore_errors=True)",
        "return folder",
        decorator="@functools.cache",
    )
    return Expression(text=f'{place.dataset}.cache(f"{{cache_folder()}}/{place.pipeline}")', functions=(folder,))


DATASET_TEXTS: dict[type, Callable[[Any, Place], Expression]] = {
    Tfds: tfds,
    Sequential: sequential,
    Interleave: interleave,
    Map: map_steps,
    AfterCache: map_steps,
    SkipCorrupt: skip_corrupt,
    Backbone: backbone,
    DiskCache: cache_disk,
}
"""Functions that return the text of stages that are not method calls, by type."""


def expression(place: Place) -> Expression:
    """Return the expression of a stage. Features of a frozen base are in memory already, and need no cache."""
    stage = place.planned.stage
    if stage.keeps and reads_features(place.plan):
        return Expression(text=place.dataset)
    called = stage.call()
    return DATASET_TEXTS[type(stage)](stage, place) if called is None else Expression(text=_called(place, called))


def _called(place: Place, called: Call) -> str:
    keywords = (f"{name}={_argument(argument)}" for name, argument in called.keywords.items())
    return call(f"{place.dataset}.{called.method}", *map(_argument, called.arguments), *keywords)


def _argument(argument: Any) -> str:
    match argument:
        case Constant():
            return argument.name
        case Parallel():
            return parallel(argument.value)
        case UpToAll():
            return str(argument.value)
        case PassSeed():
            return "seed"
    return literal(argument)
