"""Text of a pipeline in a program: a function that makes a dataset, with an expression for each stage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from etlrun.eject.maps import given, map_steps, mix, name_of_transform, pad, parse_batch, source_of, turbo
from etlrun.eject.own import Place, calls_of, defines, differs_by_pass, last_random, of_data, sources
from etlrun.eject.printed import loops, numbered, skipping
from etlrun.eject.text import call, function, literal, mapping, parallel
from etlrun.planning.plan import Plan, PlannedStage, at_cache, by_number, keeps_file_order, reads_features
from etlrun.stages.base import Scope
from etlrun.stages.cache import DiskCache
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, SkippedInBatches, Tfds, read_by_tfds
from etlrun.stages.image import Decode
from etlrun.stages.load import FullShuffle, SampleByClass, drawn, drawn_with_index
from etlrun.stages.made import Call, Constant, Parallel, PassSeed, UpToAll, quoted
from etlrun.stages.mix import Mix
from etlrun.stages.model import Backbone
from etlrun.stages.sequences import Bucket, PadSequences
from etlrun.stages.step import AfterCache, AfterTurbo, Map, ParseBatch, RowsMap
from etlrun.stages.turbo import Turbo, TurboAfterCache

FIRST_SEED = "1 + SEED * 1_000_003"
"""Seed of the first pass."""


def tfds_load(stage: Tfds, place: Place) -> str:
    """Return the text of reading with TFDS, without its own cache."""
    keys, features = place.data.keys, place.data.examples.features
    decoder = "tfds.decode.make_decoder(tf.uint8)(decoded)()" if stage.decode else "tfds.decode.SkipDecoding()"
    decoders = {quoted(key): decoder for name, key in keys.items() if features[name].format == "image"}
    place.functions.extend(sources(place.data, of_data(place.data, "builder")))
    place.functions.extend((source_of(Decode()), *sources(place.data, loops.decoded)) if stage.decode else ())
    read = place.calls(read_by_tfds, "builder()", place.split, literal(dict(keys)), mapping("", decoders))
    return place.calls(loops.with_numbers, read) if place.carries else read


def _shards(place: Place) -> str:
    """Return the dataset of shards in the order of their names, of the pass, or of a cache's first pass."""
    seed = FIRST_SEED if keeps_file_order(place.plan.spec) else "seed"
    given_to = [f"seed={seed}"] * place.planned.is_random + ["numbered=True"] * place.carries
    return place.calls(loops.shards, place.split, *given_to)


def _reader(place: Place) -> str:
    """Return the function that reads a shard."""
    if defines(place.data, "reader"):
        read = place.calls(of_data(place.data, "reader"), place.split)
    else:
        read = place.calls(loops.records).removesuffix("()")
    return place.calls(loops.with_number, read) if place.carries else read


def sequential(_stage: Sequential, place: Place) -> str:
    """Return the text of reading shard by shard."""
    return f"{_shards(place)}.flat_map({_reader(place)})"


def interleave(stage: Interleave, place: Place) -> str:
    """Return the text of reading shards in turn; after an error, the number of parallel calls decides which is next."""
    least = 1 if place.data.on_corrupt == "skip" else None
    cycle = f"len(parts_of({place.split}))" if stage.cycle_length == "all" else str(stage.cycle_length)
    calls = calls_of(stage.num_parallel_calls or least, deterministic=stage.deterministic, most=cycle)
    sizes = f"cycle_length={cycle}", f"block_length={stage.block_length}"
    return call(f"{_shards(place)}.interleave", _reader(place), *sizes, *calls)


def skip_corrupt(_stage: SkipCorrupt, place: Place) -> str:
    """Return the text of dropping elements that raise; a file that can't be opened is an error at the end of a pass."""
    return place.calls(skipping.without_broken, place.dataset, place.split)


def full_shuffle(stage: FullShuffle, place: Place) -> str:
    """Return the text of reading all examples of a split in the order of the pass."""
    place.functions.append(source_of(stage))
    examples = place.calls(of_data(place.data, "labels_of" if stage.is_by_class else "num_examples"), place.split)
    draw = drawn_with_index if place.carries else drawn
    numbers = place.calls(draw, stage.path.rpartition(".")[2], examples, "seed")
    if reads_features(place.plan):
        count = place.calls(of_data(place.data, "num_examples"), place.split)
        return place.calls(numbered.of_numbers, numbers, place.dataset, count)
    return place.calls(of_data(place.data, "by_number"), numbers, place.split)


def bucket(stage: Bucket, place: Place) -> str:
    """Return the text of cutting the rows of a pass into batches of sequences of like lengths."""
    drops = f"drop_remainder={stage.drop_remainder}"
    return place.calls(
        loops.in_buckets, place.dataset, place.split, name_of_transform(place.plan, place.pipeline), drops
    )


def backbone(stage: Backbone, place: Place) -> str:
    """Return the text of computing features before the first epoch, which makes a cache unnecessary."""
    image = quoted(place.incoming.inputs[0])
    return place.calls(loops.features_of, "base", place.dataset, image, str(stage.pictures_at_once))


def cache_disk(stage: DiskCache, place: Place) -> str:
    """Return the text of tf.data's cache, in a folder for one process: it can't tell if it is stale or in use."""
    folder = place.calls(inspect.unwrap(loops.cache_folder), *(["CACHE_DIR"] if stage.dir else []))
    return f'{place.dataset}.cache(f"{{{folder}}}/{place.pipeline}")'


DATASET_TEXTS: dict[type, Callable[[Any, Place], str]] = {
    Tfds: tfds_load,
    Sequential: sequential,
    Interleave: interleave,
    ParseBatch: parse_batch,
    Map: map_steps,
    RowsMap: map_steps,
    AfterCache: map_steps,
    AfterTurbo: map_steps,
    Turbo: turbo,
    TurboAfterCache: turbo,
    Mix: mix,
    Bucket: bucket,
    PadSequences: pad,
    SkipCorrupt: skip_corrupt,
    SkippedInBatches: skip_corrupt,
    Backbone: backbone,
    FullShuffle: full_shuffle,
    SampleByClass: full_shuffle,
    DiskCache: cache_disk,
}
"""Functions that return the text of stages that are not method calls, by type."""


def expression(place: Place) -> str:
    """Return the expression of a stage. Features of a frozen base are in memory already, and need no cache."""
    stage = place.planned.stage
    if stage.keeps and reads_features(place.plan):
        return place.dataset
    called = stage.call()
    return DATASET_TEXTS[type(stage)](stage, place) if called is None else _called(place, called)


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


def pipeline(plan: Plan, name: str, beside: Plan | None = None) -> tuple[str, ...]:
    """Return `train_dataset` or `validation_dataset` after the functions that it needs.

    They are `train_images` and `validation_images` of the phases that follow those of the plan `beside`.
    """
    writer, suffix = _Writer(plan, name, beside), "images" if beside else "dataset"
    body = writer.body(plan.pipelines[name])
    arguments = ["base: keras.Model"] if reads_features(plan) else []
    if name == "train":
        gives = f"Return the batches of all epochs, pass by pass: {writer.flow}."
        if _has_phases(plan):
            gives = f"Return the batches of so many passes: {writer.flow}."
            arguments += ["first: int"] if differs_by_pass(plan.train) else []
            arguments.append("passes: int")
        elif plan.spec.dataset.on_corrupt == "skip":
            arguments.append(f"passes: int = {_passes(plan) or -1}")
    else:
        gives = f"Return the batches of a pass: {writer.flow}."
    made = function(f"{name}_{suffix}({', '.join(arguments)}) -> tf.data.Dataset", gives, *body)
    return (*writer.needed, made)


def _passes(plan: Plan) -> str:
    """Return the number of passes as text; an empty one for endless passes."""
    trainer = plan.spec.trainer
    is_endless = trainer.all_epochs is None or trainer.steps_per_epoch is not None
    return "" if is_endless else "EPOCHS"


def _has_phases(plan: Plan) -> bool:
    return plan.spec.fit is not None and plan.spec.fit.phases is not None


class _Writer:
    """Writes stage after stage.

    All training passes are in one dataset, and Keras reads a fixed number of steps of it in each epoch. If it
    has to find the end of a pass by itself, it counts one step of the optimizer too many (Keras 3.15).

    Attributes:
        flow: Output of the last stage.
        needed: Functions that the stages call.
    """

    def __init__(self, plan: Plan, name: str, beside: Plan | None) -> None:
        self.plan, self.name, self._beside = plan, name, beside
        self.flow = plan.spec.dataset.examples
        self.needed: list[str] = []
        self._last = last_random(plan.pipelines[name])
        self._carries = self._last is not None

    def body(self, stages: Sequence[PlannedStage]) -> list[str]:
        """Return the lines of the function. Random stages are rebuilt for each pass; prefetching spans all passes."""
        ahead = [planned for planned in stages if planned.stage.scope is Scope.AROUND]
        in_pass = [planned for planned in stages if planned not in ahead]
        numbered = [] if reads_features(self.plan) else by_number(in_pass)
        if numbered:
            self.flow, in_pass = numbered[0].gives, list(numbered[1:])
        kept = len(at_cache(in_pass)[0])  # these are fixed by the first pass
        place = next((place for place, planned in enumerate(in_pass) if planned.is_random and place >= kept), None)
        is_given = self.plan.spec.dataset.on_corrupt == "skip" or _has_phases(self.plan)
        passes, first = "passes" if is_given else _passes(self.plan), "first" if _has_phases(self.plan) else 1
        if place is not None:
            count = f".take({passes})" if passes else ""
            before = self._chain(in_pass[:place], "", "examples")
            lines = [
                *before,
                "",
                self._one_pass(in_pass[place:]),
                "",
                f"dataset = tf.data.Dataset.counter({first}){count}.flat_map(one_pass)",
            ]
        else:
            lines = self._chain(in_pass, "", "dataset")
            lines += [f"dataset = dataset.repeat({passes})"] if self.name == "train" else []
        self.needed.append(given(self.flow))
        lines.append("dataset = dataset.map(given)")
        return [*lines, *self._chain(ahead, "dataset", "dataset"), "return dataset.with_options(AS_WRITTEN)"]

    def _one_pass(self, stages: Sequence[PlannedStage]) -> str:
        *lines, last = self._chain(stages, "examples", "dataset")
        return function(
            "one_pass(number: tf.Tensor) -> tf.data.Dataset",
            "Return pass `number`, from 1; SEED and `number` determine its randomness.",
            "seed = number + SEED * 1_000_003",
            *lines,
            f"return {last.removeprefix('dataset = ')}",
        )

    def _chain(self, stages: Sequence[PlannedStage], dataset: str, name: str) -> list[str]:
        """Return an assignment to `name` for each stage; the first one takes `dataset`."""
        lines = []
        for planned in stages:
            place = Place(
                plan=self.plan,
                pipeline=self.name,
                planned=planned,
                incoming=self.flow,
                dataset=dataset,
                last_random=self._last,
                carries=self._carries,
                beside=self._beside,
            )
            text, self._carries = expression(place), place.gives_index
            self.needed += place.functions
            self.flow = planned.gives
            if text != dataset:
                lines.append(f"{name} = {text}")
                dataset = name
        return lines
