"""Text of the stages of a pipeline in a program: expressions from dataset to dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etlrun.eject.maps import map_steps, mix, parse_batch, turbo
from etlrun.eject.own import of_data, sources
from etlrun.eject.place import Expression, Place, calls_of
from etlrun.eject.printed import folder, loops, numbered, reading, skipping
from etlrun.eject.steps import source_of
from etlrun.eject.text import call, function, literal, mapping, parallel
from etlrun.plan.plan import keeps_file_order, reads_features
from etlrun.stages.backbone import Backbone
from etlrun.stages.cache import DiskCache
from etlrun.stages.call import Call, Constant, Parallel, PassSeed, UpToAll
from etlrun.stages.extract import Interleave, Sequential, Tfds
from etlrun.stages.image import Decode
from etlrun.stages.load import FullShuffle, SampleByClass
from etlrun.stages.made import quoted
from etlrun.stages.mix import Mix
from etlrun.stages.skip import SkipCorrupt
from etlrun.stages.step import AfterCache, AfterTurbo, Map, ParseBatch
from etlrun.stages.turbo import Turbo, TurboAfterCache

FIRST_SEED = "1 + SEED * 1_000_003"
"""Seed of the first pass."""


def tfds_load(stage: Tfds, place: Place) -> Expression:
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
    read = function("read(split: str) -> tf.data.Dataset", says, f"return {load}")
    with_index = ".enumerate().map(lambda index, features: (features, index))" if place.carries else ""
    return Expression(
        text=f"read({place.split}){with_index}",
        functions=(source_of(Decode()), *sources(dataset, reading.decoded), read) if stage.decode else (read,),
    )


def _shards(place: Place) -> Expression:
    """Return the dataset of shards in the order of their names, of the pass, or of a cache's first pass."""
    shards = reading.shards_with_index if place.carries else reading.shards
    seed = FIRST_SEED if keeps_file_order(place.plan.spec) else "seed"
    text = f"{shards.__name__}({place.split}{f', seed={seed}' if place.planned.is_random else ''})"
    return Expression(text=text, functions=sources(place.plan.spec.dataset, shards))


def _reader(place: Place) -> Expression:
    """Return the function that reads a shard."""
    dataset = place.plan.spec.dataset
    read, text = (folder.reader, f"reader({place.split})") if dataset.is_listed else (reading.records, "records")
    if not place.carries:
        return Expression(text=text, functions=sources(dataset, read))
    return Expression(text=f"with_index({text})", functions=sources(dataset, read, reading.with_index))


def sequential(_stage: Sequential, place: Place) -> Expression:
    """Return the text of reading shard by shard."""
    shards, reader = _shards(place), _reader(place)
    return Expression(text=f"{shards.text}.flat_map({reader.text})", functions=(*shards.functions, *reader.functions))


def interleave(stage: Interleave, place: Place) -> Expression:
    """Return the text of reading shards in turn; after an error, the number of parallel calls decides which is next."""
    shards, reader, dataset = _shards(place), _reader(place), place.plan.spec.dataset
    least, functions = 1 if dataset.on_corrupt == "skip" else None, (*shards.functions, *reader.functions)
    cycle = f"len(parts_of({place.split}))" if stage.cycle_length == "all" else str(stage.cycle_length)
    calls = calls_of(stage.num_parallel_calls or least, deterministic=stage.deterministic, most=cycle)
    sizes = f"cycle_length={cycle}", f"block_length={stage.block_length}"
    return Expression(text=call(f"{shards.text}.interleave", reader.text, *sizes, *calls), functions=functions)


def skip_corrupt(_stage: SkipCorrupt, place: Place) -> Expression:
    """Return the text of dropping elements that raise; a file that can't be opened is an error at the end of a pass."""
    functions = sources(place.plan.spec.dataset, skipping.without_broken)
    return Expression(text=f"without_broken({place.dataset}, {place.split})", functions=functions)


def full_shuffle(stage: FullShuffle, place: Place) -> Expression:
    """Return the text of reading all examples of a split in the order of the pass."""
    dataset = place.plan.spec.dataset
    drawn = numbered.drawn_with_index if place.carries else numbered.drawn
    examples = of_data(dataset, "labels_of" if stage.is_by_class else "num_examples")
    op = stage.path.rpartition(".")[2]
    numbers = f"{drawn.__name__}({op}, {examples.__name__}({place.split}), seed)"
    if reads_features(place.plan):
        count, take = of_data(dataset, "num_examples"), numbered.of_numbers
        text = f"of_numbers({numbers}, {place.dataset}, num_examples({place.split}))"
        return Expression(text=text, functions=(source_of(stage), *sources(dataset, examples, count, drawn, take)))
    read = sources(dataset, examples, drawn, of_data(dataset, "by_number"))
    return Expression(text=f"by_number({numbers}, {place.split})", functions=(source_of(stage), *read))


def backbone(stage: Backbone, place: Place) -> Expression:
    """Return the text of computing features before the first epoch, which makes a cache unnecessary."""
    functions = sources(place.plan.spec.dataset, loops.features_of)
    return Expression(text=f"features_of(base, {place.dataset}, {stage.pictures_at_once})", functions=functions)


def cache_disk(stage: DiskCache, place: Place) -> Expression:
    """Return the text of tf.data's cache, in a folder for one process: it can't tell if it is stale or in use."""
    folder = f"cache_folder({'CACHE_DIR' if stage.dir else ''})"
    functions = sources(place.plan.spec.dataset, loops.cache_folder)
    return Expression(text=f'{place.dataset}.cache(f"{{{folder}}}/{place.pipeline}")', functions=functions)


DATASET_TEXTS: dict[type, Callable[[Any, Place], Expression]] = {
    Tfds: tfds_load,
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
