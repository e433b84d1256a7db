"""Text of the stages of a pipeline in a program: expressions from dataset to dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etlrun.eject.maps import map_steps, mix, parse_batch, turbo
from etlrun.eject.numbered import full_shuffle
from etlrun.eject.place import Expression, Place, calls_of, last_random
from etlrun.eject.sources import readable, reading
from etlrun.eject.steps import source_of
from etlrun.eject.text import call, function, literal, mapping, parallel, quoted
from etlrun.plan.plan import keeps_file_order, reads_features
from etlrun.stages.backbone import Backbone
from etlrun.stages.cache import DiskCache
from etlrun.stages.call import Call, Constant, Parallel, PassSeed, UpToAll
from etlrun.stages.extract import Interleave, Sequential, Tfds
from etlrun.stages.image import Decode
from etlrun.stages.load import FullShuffle, SampleByClass
from etlrun.stages.mix import Mix
from etlrun.stages.skip import SkipCorrupt
from etlrun.stages.step import AfterCache, AfterTurbo, Map, ParseBatch
from etlrun.stages.turbo import Turbo, TurboAfterCache

FIRST_SEED = "1 + SEED * 1_000_003"
"""Seed of the first pass."""
_READ = "read(split: str) -> tf.data.Dataset"
_RECORDS = function(
    "records(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset",
    "Read `take` records of a shard, after the first `skip`; a `take` of -1 means all.",
    "return tf.data.TFRecordDataset(path).skip(skip).take(take)",
)
_OF_SHARD = function(
    "of_shard(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset",
    "Read the records of a shard, each with its index in the split, which differs for examples that are equal.",
    "return records(path, skip, take).enumerate(first).map(lambda index, record: (record, index))",
)


_DECODED = function(
    "decoded(image: tf.Tensor, _feature: tfds.features.Image) -> tf.Tensor",
    "Decode to three channels of uint8, whatever the feature declares.",
    "return decode(image)",
)


def _read(place: Place, says: str, result: str) -> tuple[str, ...]:
    """Return the function that reads both pipelines; a pipeline that shuffles the shards passes a seed.

    In `result`, READER stands for the function that reads a shard.
    """
    is_shuffled, dataset = place.plan.spec.extract.random, place.plan.spec.dataset
    is_folder, is_indexed = dataset.is_listed, _is_indexed(place)
    takes = "examples_in_shard - part.skip if part.take == -1 else part.take" if dataset.is_of_tfds else "take"
    indexed = (
        f"takes = [part.{takes} for part in parts]",
        "firsts = [*itertools.accumulate(takes, initial=0)][:-1]",
    )
    numbered = (
        "images = tf.constant(records_of(split))",
        "",
        function(
            "records(_: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset",
            "Return `take` images by number, after the first `skip`.",
            "return tf.data.Dataset.from_tensor_slices(images[skip : skip + take])",
        ),
        "",
        *((_OF_SHARD, "") if is_indexed else ()),
    )
    shuffled = (
        "if seed is not None:",
        "    shards = shards.shuffle(len(parts), seed=seed, reshuffle_each_iteration=False)",
    )
    body = (
        *(numbered if is_folder else ()),
        f"parts = {reading(dataset).parts}",
        *(indexed if is_indexed else ()),
        "shards = tf.data.Dataset.from_tensor_slices(",
        "    (",
        "        [str(part.filename) for part in parts],",
        "        tf.constant([part.skip for part in parts], tf.int64),",
        "        tf.constant([part.take for part in parts], tf.int64),",
        *(["        tf.constant(firsts, tf.int64),"] if is_indexed else []),
        "    )",
        ")",
        *(shuffled if is_shuffled else ()),
        f"return {result.replace('READER', 'of_shard' if is_indexed else 'records')}",
    )
    signature = "read(split: str, seed: int | tf.Tensor | None = None) -> tf.data.Dataset" if is_shuffled else _READ
    of_files = () if is_folder else (_RECORDS, *((_OF_SHARD,) if is_indexed else ()))
    return (*of_files, function(signature, says, *body))


def _is_indexed(place: Place) -> bool:
    """Return whether a program reads examples with their indices, which a pipeline may do without."""
    return any(last_random(stages) is not None for stages in place.plan.pipelines.values())


def tfds(stage: Tfds, place: Place) -> Expression:
    """Return the text of reading with TFDS, without its own cache."""
    dataset = place.plan.spec.dataset
    features = {key: dataset.examples.features[name] for name, key in dataset.keys.items()}
    decoder = "tfds.decode.make_decoder(tf.uint8)(decoded)()" if stage.decode else "tfds.decode.SkipDecoding()"
    decoders = [f"{quoted(key)}: {decoder}" for key, feature in features.items() if feature.format == "image"]
    wanted = [mapping("", {quoted(key): "True" for key in features})]
    wanted += [f"decoders={{{', '.join(decoders)}}}"] if decoders else []
    load = call(
        "builder().as_dataset",
        "split=split",
        "decoders=" + call("tfds.decode.PartialDecoding", *wanted),
        "read_config=tfds.ReadConfig(try_autocache=False, assert_cardinality=False)",
    )
    images = f"; images are {'decoded' if stage.decode else 'still encoded'}" if decoders else ""
    says = f"Read the features of the examples of `split`, as `tfds.load` does{images}."
    with_index = "return found.enumerate().map(lambda index, features: (features, index))"
    is_indexed = _is_indexed(place)
    read = function(
        _READ, says, f"{'found =' if is_indexed else 'return'} {load}", *((with_index,) if is_indexed else ())
    )
    return Expression(
        text=_of_split(place), functions=(source_of(Decode()), _DECODED, read) if stage.decode else (read,)
    )


def _of_split(place: Place) -> str:
    """Return the call that reads a split in the order of the shards' names, of the pass, or of a cache's first pass."""
    split = f"{place.pipeline.upper()}_SPLIT"
    seed = FIRST_SEED if keeps_file_order(place.plan.spec) else "seed"
    read = f"read({split}, seed={seed})" if place.planned.is_random else f"read({split})"
    without = _is_indexed(place) and not place.carries
    return f"{read}.map(lambda example, _: example)" if without else read


def _in_order(place: Place) -> str:
    return "; a `seed` shuffles the shards" if place.plan.spec.extract.random else ""


def sequential(_stage: Sequential, place: Place) -> Expression:
    """Return the text of reading shard by shard."""
    says = f"Read {place.planned.gives}s, one shard after the other{_in_order(place)}."
    return Expression(text=_of_split(place), functions=_read(place, says, "shards.flat_map(READER)"))


def interleave(stage: Interleave, place: Place) -> Expression:
    """Return the text of reading shards in turn; after an error, the number of parallel calls decides which is next."""
    block = "one" if stage.block_length == 1 else str(stage.block_length)
    turns = f"{block} from each of {stage.cycle_length} shards in turn"
    says = f"Read {place.planned.gives}s, {turns}{_in_order(place)}."
    least = 1 if place.plan.spec.dataset.on_corrupt == "skip" else None
    cycle = "len(parts)" if stage.cycle_length == "all" else str(stage.cycle_length)
    calls = calls_of(stage.num_parallel_calls or least, deterministic=stage.deterministic, most=cycle)
    sizes = f"cycle_length={cycle}", f"block_length={stage.block_length}"
    return Expression(
        text=_of_split(place), functions=_read(place, says, call("shards.interleave", "READER", *sizes, *calls))
    )


def skip_corrupt(_stage: SkipCorrupt, place: Place) -> Expression:
    """Return the text of dropping elements that raise; a file that can't be opened is an error at the end of a pass."""
    dataset = place.plan.spec.dataset
    return Expression(
        text=f"without_broken({place.dataset}, {place.pipeline.upper()}_SPLIT)",
        functions=(
            readable(dataset),
            function(
                "without_broken(dataset: tf.data.Dataset, split: str) -> tf.data.Dataset",
                "Drop elements that raise; a file of `split` that can't be opened is an error at the end.",
                f"paths = {reading(dataset).paths}",
                "files = tf.data.Dataset.from_tensor_slices(paths)",
                "opened = files.flat_map(lambda path: tf.data.FixedLengthRecordDataset(path, 1).take(1))",
                "return readable(dataset, split).concatenate(opened.flat_map(lambda _: dataset.take(0)))",
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
    ParseBatch: parse_batch,
    Map: map_steps,
    AfterCache: map_steps,
    AfterTurbo: map_steps,
    Turbo: turbo,
    TurboAfterCache: turbo,
    Mix: mix,
    SkipCorrupt: skip_corrupt,
    Backbone: backbone,
    FullShuffle: full_shuffle,
    SampleByClass: full_shuffle,
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
