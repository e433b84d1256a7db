import dataclasses
from typing import Any

import pytest

from benchmarks.random_configs import AXES, random_pairs
from etlrun.planning.plan import Plan, kinds_in
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.review.difference import Comparison, Difference, compare
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind, Parameter, Stage, field_metadata, parameters
from tests.configs import KINDS, OTHER_VALUES, TENSORFLOW, beside, composed, plan_of, spec_of

SCALE = "transform.scale_minus_one_one"
LEFT_OUT = "(keeps or drops the last, smaller batch of a pass)"
RECOLOURED = (
    "transform.steps=[decode,resize,random_flip,random_flip_up_down,random_grey,scale_minus_one_one]",
    "+transform.random_grey.probability=0.5",
)
FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"


def comparison(old: list[str], new: list[str]) -> Comparison:
    return compare(plan_of(*old), plan_of(*new), (composed(*old), composed(*new)))


def shown(found: Comparison) -> list[str]:
    return [
        f"{item.path}: {item.old} -> {item.new}, {item.kind}{item.since and f' from {item.since}'}"
        f"{(item.pipelines and f' in {item.pipelines}') or ''}{item.note and f' ({item.note})'}"
        for item in found.differences
    ]


@pytest.mark.parametrize(
    ("old", "new", "headline", "differences"),
    [
        ([], [], "changes nothing", []),
        (
            ["experiment=parallel"],
            ["experiment=parallel", "load.prefetch=1"],
            "changes only the speed",
            ["load.prefetch: autotune -> 1, speed"],
        ),
        (
            [],
            ["transform.resize.size=[96,96]", "load.prefetch=1"],
            "changes the data, from transform.resize on, and the speed",
            [
                "transform.resize.size: [64, 64] -> [96, 96], data from transform.resize",
                "load.prefetch: autotune -> 1, speed",
            ],
        ),
        (
            [],
            ["dataset=folder", "dataset.dir=pets"],
            "changes the data, from the dataset on",
            [
                "dataset.name: etlrun_sample -> folder, data from the dataset",
                "dataset.dir: None -> pets, data from the dataset",
            ],
        ),
        (
            [],
            ["trainer.metrics=[f1]"],
            "changes only what is reported of epochs",
            ["trainer.metrics: ['accuracy'] -> ['f1'], speed (changes what is reported of epochs, nothing else)"],
        ),
        (
            [],
            ["trainer.metrics=[f1]", "load.prefetch=1"],
            "changes only the speed and what is reported of epochs",
            [
                "load.prefetch: autotune -> 1, speed",
                "trainer.metrics: ['accuracy'] -> ['f1'], speed (changes what is reported of epochs, nothing else)",
            ],
        ),
        (
            ["cache=none"],
            ["cache=none", FLIPPED, "dataset.split=train"],
            "changes the data, from the dataset on",
            [
                "dataset.split: train[:80%] -> train, data from the dataset in ('train',)",
                "transform.random_flip: None -> after resize, data from transform.random_flip in ('train',)",
            ],
        ),
        (
            ["cache=none"],
            ["cache=none", "cache.at=decoded"],
            "changes nothing",
            ["cache.at: transformed -> decoded, None"],
        ),
        (["cache.at=decoded"], [], "changes only the speed", ["cache.at: decoded -> transformed, speed"]),
        (
            [],
            ["extract=sequential", "load.shuffle_buffer=0", "trainer.seed=1"],
            "changes the training and the order",
            [
                "load.shuffle_buffer: 1024 -> 0, training",
                "trainer.seed: 0 -> 1, training",
                "extract: interleave -> sequential, order",
            ],
        ),
        (
            [],
            ["model=emulated", "trainer.optimizer=sgd"],
            "changes the training",
            ["trainer.optimizer: adam -> sgd, training", "model: mobilenet_v2 -> emulated, training"],
        ),
        (
            [],
            ["load.drop_remainder=true"],
            "changes the data, from load.batch on, and the training",
            [f"load.drop_remainder: false -> true, data from load.batch in {('train',)} {LEFT_OUT}"],
        ),
        (
            [],
            ["transform.resize.dtype=float32"],
            "changes the data, from transform.resize on",
            [
                "transform.resize.dtype: uint8 -> float32, data from transform.resize",
                f"{SCALE}: in the model -> in the pipeline, data from {SCALE}",
            ],
        ),
        (
            ["extract=tfds", TENSORFLOW],
            [
                "extract=tfds",
                "extract.decode=true",
                *(f"transform.{key}=[resize,scale_minus_one_one]" for key in ("steps", "eval_steps")),
            ],
            "changes only the speed",
            ["extract.decode: false -> true, speed", "transform.decode: first -> None, speed"],
        ),
        (
            ["transform.resize.size=[64,64]"],
            ["dataset.data_dir=/data"],
            "changes only the speed",
            ["dataset.data_dir: null -> /data, speed (if it holds the same files)"],
        ),
        ([], ["transform.parse_batch=32"], "changes only the speed", ["transform.parse_batch: null -> 32, speed"]),
        (["transform.parse_batch=32"], [], "changes only the speed", ["transform.parse_batch: 32 -> null, speed"]),
        (
            ["dataset.eval_split=null"],
            ["dataset.eval_split=null", "transform.eval_steps=[decode]"],
            "changes nothing",
            ["transform.eval_steps: ['decode', 'resize', 'scale_minus_one_one'] -> ['decode'], None"],
        ),
        (
            [],
            ["transform.steps=[decode,center_crop,resize,scale_minus_one_one]"],
            "changes the data, from transform.center_crop on",
            ["transform.center_crop: None -> after decode, data from transform.center_crop in ('train',)"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_difference_is_told_with_what_it_changes(
    old: list[str], new: list[str], headline: str, differences: list[str]
) -> None:
    found = comparison(old, new)
    assert (found.headline, shown(found)) == (headline, differences)


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        (
            ["load.drop_remainder=true"],
            ["load.drop_remainder=true", "load.batch_size=8"],
            "load.drop_remainder=true: with a different order or different batches, a pass drops different examples.",
        ),
        (
            ["cache=none", FLIPPED],
            ["cache=none", FLIPPED, "trainer.seed=2"],
            "With a different seed, transform.random_flip transforms each image differently.",
        ),
        (
            ["cache=none", *RECOLOURED],
            ["cache=none", *RECOLOURED, "trainer.seed=2"],
            (
                "With a different seed, transform.random_flip, transform.random_flip_up_down and transform.random_grey "
                "transform each image differently."
            ),
        ),
        (
            ["load.drop_remainder=true", "transform.deterministic=false"],
            ["load.drop_remainder=true", "transform.deterministic=false", "load.prefetch=1"],
            "Without a fixed order, load.drop_remainder=true drops different examples in each pass and in each run.",
        ),
        (
            ["trainer.steps_per_epoch=2"],
            ["trainer.steps_per_epoch=2", "load.shuffle_buffer=0"],
            "trainer.steps_per_epoch=2: with a different order or different batches, a pass drops different examples.",
        ),
        (
            ["trainer.steps_per_epoch=2"],
            ["trainer.steps_per_epoch=2", "trainer.epochs=9"],
            "trainer.steps_per_epoch=2: if training ends after a different step, it drops different examples.",
        ),
        (
            ["trainer.steps_per_epoch=2"],
            ["trainer.steps_per_epoch=3"],
            "trainer.steps_per_epoch=2: if training ends after a different step, it drops different examples.",
        ),
        (
            ["trainer.steps_per_epoch=2", "trainer.early_stopping.patience=1"],
            ["trainer.steps_per_epoch=2", "trainer.early_stopping.patience=1", "trainer.learning_rate=0.5"],
            "trainer.steps_per_epoch=2: if training ends after a different step, it drops different examples.",
        ),
        (
            ["trainer=drain", "trainer.seconds=2.5"],
            ["trainer=drain", "trainer.seconds=2.5", "load.prefetch=1"],
            "trainer.seconds=2.5 ends a run within a pass: the number of examples depends on the speed.",
        ),
        (
            ["transform.deterministic=false"],
            ["transform.deterministic=false", "transform.num_parallel_calls=8"],
            "The order of examples is not fixed: it differs in each run.",
        ),
        (
            ["model.trainable=false"],
            ["model.trainable=false", "cache.at=features"],
            "cache.at = features: losses equal those of a run without it within float tolerance, not bit for bit.",
        ),
    ],
)
def test_what_a_reader_should_know_is_told(old: list[str], new: list[str], note: str) -> None:
    assert comparison(old, new).notes == (note,)


@pytest.mark.parametrize("cut", ["load.drop_remainder=true", "trainer.steps_per_epoch=3"])
def test_without_a_fixed_order_what_is_left_out_can_not_be_known_to_be_the_same(cut: str) -> None:
    loose = [cut, "transform.deterministic=false"]
    assert comparison(loose, [*loose, "load.prefetch=1"]).headline == (
        "changes perhaps the data, from load.batch on, and the speed"
    )


@pytest.mark.parametrize("key", sorted(OTHER_VALUES))
def test_each_parameter_changes_what_its_kind_says(key: str) -> None:
    base = [*beside(key), "measure.au_min=null"]
    found = comparison(base, [*base, f"{key}={OTHER_VALUES[key]}"])
    told = {item.path: item.kind for item in found.differences if item.path == key}
    assert told == {key: SPEED if key == "trainer.metrics" else KINDS[key]}


FROZEN = "model.trainable=false"
VGG = ("model=keras_application", "model.name=VGG16", "model.weights=null", "model.trainable=true")


@pytest.mark.parametrize(
    ("beside", "buffer", "full", "batch", "mixed"),
    [
        ([], TRAINING, TRAINING, TRAINING, True),
        ([FROZEN], ORDER, ORDER, TRAINING, True),
        ([*VGG], ORDER, ORDER, TRAINING, False),
        (["model=emulated"], ORDER, ORDER, ORDER, False),
        (["trainer=drain"], ORDER, ORDER, ORDER, False),
    ],
)
def test_a_training_that_is_not_there_is_not_changed(
    beside: list[str], buffer: Kind, full: Kind, batch: Kind, *, mixed: bool
) -> None:
    base = ["extract=sequential", "cache=none", *beside]
    words = {"load.shuffle_buffer=0": buffer, "load.shuffle=full": full, "load.batch_size=128": batch}
    told = {word: comparison(base, [*base, word]) for word in words}
    assert {word: found.differences[0].kind for word, found in told.items()} == words
    assert all(found.is_reordered for found in told.values())
    mixing = [*base, "load.mixup_alpha=0.2"]
    note = "With a different order or different batches, MixUp and CutMix mix other images."
    assert not mixed or all(comparison(mixing, [*mixing, word]).notes == (note,) for word in words)


OF_JPEGS = {
    "cache.at": ["decode", "resize", "center_crop", "transformed"],
    "cache.codec": ["raw", "jpeg90", "jpeg95"],
    "cache.name": ["memory", "disk", "none"],
    "transform.steps": [
        ["decode", "resize", "center_crop", "scale_minus_one_one"],
        ["decode", "resize", "center_crop"],
    ],
}
OF_DRAWS = {
    "extract": [{"name": "sequential", "shuffle_files": False}],
    "cache.name": ["none"],
    "load.shuffle": ["buffer", "full"],
    "load.sample": ["all", "uniform_by_class"],
    "load.mixup_alpha": [0.0, 0.2],
    "trainer.seed": [0, 1, 2],
}


def data_of(planned: Plan) -> dict[str, Any]:
    """What determines the examples, by declared kinds alone."""
    found: dict[str, Any] = {}
    for prefix, stage in planned.deciding:
        is_part = (
            bool(prefix)
            and stage.changes_data
            and not stage.path.startswith(("extract.", "load.shuffle", "load.batch"))
        )
        found.setdefault(f"{prefix}stages", []).extend([stage.path] * is_part)
        found |= {
            f"{prefix}{stage.path}.{name}": getattr(stage, name)
            for name, metadata in field_metadata(type(stage)).items()
            if DATA in metadata and name != "library"
        }
    random = [of.stage for outer in planned.train for of in (outer, *outer.steps) if of.stage.random]
    draws = any(not of.only_reorders or of.path == "load.sample_by_class" for of in random)
    return found | ({"seed": planned.spec.trainer.seed} if draws else {})


@pytest.mark.parametrize(
    ("axes", "at_least"), [({}, 50), (OF_JPEGS, 10), (OF_DRAWS, 10)], ids=["any", "jpegs", "draws"]
)
def test_what_differs_in_a_fingerprint_is_told(axes: dict[str, list[Any]], at_least: int) -> None:
    base = composed("trainer=drain", "trainer.epochs=2", "dataset.eval_split=null")
    counts, others = {True: 0, False: 0}, 0
    near = {} if not axes else {key: AXES[key] for key in ("load.batch_size", "load.prefetch", "measure.digest")}
    for one, other in random_pairs(
        base, 1, 100 if axes else 300, {**(near or AXES), **axes}, *([[*axes]] if axes else [])
    ):
        plans = plan(parse(one, STAGES)), plan(parse(other, STAGES))
        equal = plans[0].fingerprint == plans[1].fingerprint
        found = compare(*plans, (one, other))
        if not any("Without a fixed order" in note for note in found.notes):
            assert ({*found.kinds} <= {SPEED}) == equal, (one, other, found)
            counts[equal] += 1
        if data_of(plans[0]) != data_of(plans[1]):
            assert found.changes_data, (one, other, found)
            others += 1
        assert compare(*plans[::-1], (other, one)).kinds == found.kinds
        assert (DATA in found.kinds) == bool(found.since)
    assert min(others, *counts.values()) > at_least


def test_what_no_value_explains_is_told_by_its_path() -> None:
    old, new = plan_of(), plan_of("transform.resize.size=[65,65]", "trainer.epochs=9")
    hidden = dataclasses.replace(new, spec=old.spec)  # as if a value that counts had no kind
    assert old.fingerprint != hidden.fingerprint
    assert [f"{of.path}: {of.old} -> {of.new}, {of.kind}" for of in compare(old, hidden).differences] == [
        "eval/transform.resize.size: [64, 64] -> [65, 65], data",
        "train/transform.resize.size: [64, 64] -> [65, 65], data",
    ]


@pytest.mark.parametrize(
    ("words", "change", "headline", "kind"),
    [
        (
            ["cache=none", FLIPPED, "load.shuffle_buffer=0"],
            "trainer.seed=2",
            "changes the data, from transform.random_flip on, and the training",
            "data and training, from transform.random_flip on, in train",
        ),
        (
            ["load.mixup_alpha=0.2", "load.shuffle_buffer=0"],
            "trainer.seed=2",
            "changes the data, from load.batch on, and the training",
            "data and training, from load.batch on, in train",
        ),
        (
            ["extract=sequential", "cache=none", "load.shuffle=full", "load.sample=uniform_by_class"],
            "trainer.seed=2",
            "changes the data, from the dataset on, the training, and the order",
            "data and training, from the dataset on, in train",
        ),
        (
            ["load.drop_remainder=true"],
            "load.shuffle_buffer=16",
            "changes perhaps the data, from load.batch on, the training, and the order",
            "training and order",
        ),
        (
            ["trainer.steps_per_epoch=2"],
            "trainer.epochs=9",
            "changes perhaps the data, from load.batch on, and the training",
            "training",
        ),
    ],
)
def test_all_that_a_change_may_change_is_in_its_kinds(words: list[str], change: str, headline: str, kind: str) -> None:
    found = comparison(words, [*words, change])
    assert (found.headline, found.differences[0].what) == (headline, kind)


def test_a_cache_with_jpegs_keeps_the_order_of_files_too() -> None:
    found = comparison(
        ["cache=none", "extract.shuffle_files=true"],
        ["cache=memory", "cache.codec=jpeg90", "cache.at=resize", "extract.shuffle_files=true"],
    )
    assert [(of.path, of.kind, of.also) for of in found.differences][:1] == [("cache", DATA, (ORDER,))]


def test_a_plan_says_what_the_place_of_jpegs_and_a_seed_change() -> None:
    words = ("cache=memory", "cache.codec=jpeg90", FLIPPED, "cache.at=resize")
    assert [kinds_in(plan_of(*words).spec, stage, of)[0] for stage, of in _parameters(*words)] == [DATA, DATA]
    assert [kinds_in(plan_of().spec, stage, of)[0] for stage, of in _parameters()] == [SPEED, TRAINING]


def _parameters(*words: str) -> list[tuple[Stage, Parameter]]:
    spec = spec_of(*words)
    found = ((stage, of) for stage in (spec.cache, spec.trainer) for of in parameters(stage))
    return [(stage, of) for stage, of in found if of.name in {"at", "seed"}]


def test_kinds_come_in_the_order_of_what_they_change() -> None:
    found = comparison([], ["dataset.split=train", "extract=sequential", "trainer.epochs=9", "load.prefetch=3"])
    assert found.kinds == (DATA, TRAINING, ORDER, SPEED)
    assert found.headline == "changes the data, from the dataset on, the training, the order, and the speed"
    assert isinstance(found.differences[0], Difference)
