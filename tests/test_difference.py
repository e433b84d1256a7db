"""What differs between two plans, and what `diff` claims about data, held against pipelines that run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.claims import OTHER_DATA, SPEED_ONLY, claims
from benchmarks.policies import FAILS, PASSES
from benchmarks.random_configs import AXES, random_pairs
from benchmarks.trainings import OTHER_TRAINING, Trainer, first_of, singles
from etlrun.planning.plan import Plan, kinds_in
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.review.difference import Comparison, Difference, compare, of_columns
from etlrun.sources.base import on_disk, open_source
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, ORDER, SPEED, TRAINING, Kind, Parameter, Stage, field_metadata, parameters
from etlrun.stages.column_categories import Lookup, Quantiles
from etlrun.stages.columns import Columns, Output
from tests.configs import KINDS, OTHER_VALUES, beside, composed, plan_of, spec_of
from tests.golden import Case, Golden, Says, cases
from tests.present import present

FIRST = "my-steps 1.0.2, code 1a"


@pytest.mark.parametrize("case", cases("packages"))
def test_a_changed_package_is_named_by_its_version(case: Case, golden: Golden) -> None:
    name = case["name"]
    found = compare(replace(plan_of(), code={name: FIRST}), replace(plan_of(), code={name: case["new"]}))
    golden(case, "\n".join(f"{of.path}: {of.change}: {of.what}" for of in found.differences))


STEPS = (
    "area: {steps: [{fill: median}, standardize]}",
    "kind: {steps: [{fill: none}, lookup, one_hot]}",
    "rank: {of: area, steps: [{fill: 0}, {quantiles: 3}, one_hot]}",
)


def words(file: Path, steps: Sequence[str] = STEPS) -> tuple[str, ...]:
    """Arguments of a run of the rows in a file, with what is learned from them."""
    given = [f"dataset.files={file}", f"dataset.dir={file.parent / 'kept'}", "dataset.target={price: number}"]
    dataset = ["dataset=table", *given, "dataset.split=train", "dataset.eval_split=null", "transform=columns"]
    columns = f"transform.columns={{{', '.join(steps)}}}"
    return (*dataset, columns, "extract=sequential", "cache=none", "model=emulated")


def planned(file: Path, rows: str, steps: Sequence[str] = STEPS) -> Plan:
    file.write_text(f"area,kind,price\n{rows}", encoding="utf-8")
    return plan(spec_of(*words(file, steps)))


def told(found: Comparison) -> list[tuple[str, str | None, str | None, str]]:
    assert {(of.kind, of.since) for of in found.differences} <= {("data", "transform.columns"), ("data", "the dataset")}
    return [(of.path, of.old, of.new, of.since) for of in found.differences]


def test_what_columns_have_learned_otherwise_is_told_by_column_and_value(tmp_path: Path, says: Says) -> None:
    """As after a file has got other rows: what was asked for is the same."""
    file, _since = tmp_path / "houses.csv", "transform.columns"
    old = planned(file, "1,flat,3\n2,flat,3\n3,loft,3\n,loft,4\n")
    new = planned(file, "1,flat,3\n2,flat,3\n6,house,3\n,house,4\n7,house,5\n")
    found = compare(old, new)
    assert (found.headline, found.doubts) == ("changes the data, from the dataset on", ())
    says(told(found))


def test_values_of_a_config_are_told_as_the_whole_output_that_they_change(tmp_path: Path, says: Says) -> None:
    """What is learned then follows from them."""
    rows = "1,flat,3\n2,flat,3\n3,loft,3\n,loft,4\n"
    old = planned(tmp_path / "houses.csv", rows)
    new = planned(tmp_path / "houses.csv", rows, (STEPS[0].replace("median", "mean"), *STEPS[1:]))
    says(told(compare(old, new)))


VOCABULARIES = [
    ((1, 2, 3), (1, 3, 2), "3 values: the same ones, in another order"),
    (("a", "b"), ("b", "c", "d"), "3 values: 2 added (c, d), 1 removed (a)"),
    (("a",), ("a", *"bcdefghi"), "9 values: 8 added (b, c, d, e, f, g and 2 more), 0 removed"),
    (("a", "b"), ("b",), "1 value: 0 added, 1 removed (a)"),
    (("a",), ("a", "", "b\nc", "x" * 40, "é"), f"5 values: 4 added ('', b\\nc, {'x' * 29}…, é), 0 removed"),
]


@pytest.mark.parametrize(("old", "new", "text"), VOCABULARIES)
def test_a_vocabulary_is_told_by_what_is_added_and_removed(old: tuple[Any], new: tuple[Any], text: str) -> None:
    sides = [Columns(outputs=(Output(name="x", of=("x",), steps=(Lookup(values=of),)),)) for of in (old, new)]
    path = "transform.columns"
    (found,) = of_columns(*sides)
    assert (found.path, found.old) == (f"{path}.x.lookup.vocabulary", f"{len(old)} value{'s' * (len(old) > 1)}")
    assert (found.new, found.kind, found.since) == (text, DATA, path)


def test_long_boundaries_are_told_where_they_differ(says: Says) -> None:
    many = tuple(float(of) for of in range(9))
    sides = (many, (*many[:3], 3.00001, *many[4:7], 7.5, 8.0), many[:-1])
    steps = [(Quantiles(count=10, boundaries=of), Quantiles(count=2, boundaries=(0.0,))) for of in sides]
    found = [Columns(outputs=(Output(name="x", of=("x",), steps=of),)) for of in steps]
    told = [(of.path, of.old, of.new) for other in found[1:] for of in of_columns(found[0], other)]
    says(told)


def test_rows_that_are_not_here_change_perhaps_the_data(tmp_path: Path) -> None:
    file = tmp_path / "houses.csv"
    old = planned(file, "1,flat,3\n2,flat,3\n3,loft,3\n,loft,4\n")
    file.unlink()
    gone = plan(spec_of(*words(file)))
    doubt = "The rows of one side alone are on this machine: what columns learn of those of the other is unknown."
    for sides in ((old, gone), (gone, old)):
        found = compare(*sides)
        assert (found.headline, found.differences) == ("changes perhaps the data, from the dataset on", ())
        assert (found.doubts, found.is_unsure) == ((doubt,), True)
    other = plan(spec_of(*words(file, STEPS[:1])))
    assert [of.path for of in compare(old, other).differences] == ["transform.columns.kind", "transform.columns.rank"]
    auto = plan(spec_of(*words(file), "transform.columns=auto"))
    assert compare(old, auto).differences == ()
    assert compare(gone, other).doubts == ()


def test_as_many_other_rows_change_perhaps_the_data(tmp_path: Path) -> None:
    file, columns = tmp_path / "houses.csv", ("area: {steps: [{fill: 0}]}",)
    old = planned(file, "1,flat,3\n2,flat,4\n", columns)
    new = planned(file, "9,flat,4\n9,flat,3\n", columns)
    first, then = (of.spec.dataset.known.identity for of in (old, new))  # type: ignore[attr-defined]
    found = compare(old, new)
    assert (found.headline, found.differences) == ("changes perhaps the data, from the dataset on", ())
    assert found.doubts == (
        f"The rows may be others: their identity is {first}, and then {then}, by content, names and reader.",
    )
    assert compare(old, old).headline == "changes nothing"


FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"


def comparison(old: list[str], new: list[str]) -> Comparison:
    return compare(plan_of(*old), plan_of(*new), (composed(*old), composed(*new)))


@pytest.mark.parametrize("case", cases("difference"))
def test_a_difference_is_told_with_what_it_changes(case: Case, golden: Golden) -> None:
    found = comparison(case["old"], case["new"])
    lines = [f"{of.path}: {of.change}, {of.what}" for of in found.differences]
    golden(case, "\n".join([found.headline, *lines, *found.notes]))


@pytest.mark.parametrize("key", sorted(OTHER_VALUES))
def test_each_parameter_changes_what_its_kind_says(key: str) -> None:
    base = [*beside(key), "measure.au_min=null"]
    found = comparison(base, [*base, f"{key}={OTHER_VALUES[key]}"])
    name = "dataset.eval_splits.hard" if key == "dataset.eval_splits" else key
    told = {item.path: item.kind for item in found.differences if item.path == name}
    assert told == {name: SPEED if key == "trainer.metrics" else KINDS[key]}


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


def test_what_no_value_explains_is_told_by_its_path(says: Says) -> None:
    old, new = plan_of(), plan_of("transform.resize.size=[65,65]", "trainer.epochs=9")
    hidden = dataclasses.replace(new, spec=old.spec)  # as if a value that counts had no kind
    assert old.fingerprint != hidden.fingerprint
    says([f"{of.path}: {of.old} -> {of.new}, {of.kind}" for of in compare(old, hidden).differences])


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


@pytest.mark.slow
def test_only_the_speed_is_never_said_of_other_data(tiny: Path, tmp_path: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    small = ("transform.resize.size=[32,32]", f"cache.dir={tmp_path}", "trainer=drain", "trainer.epochs=2")
    counts, answers, wrong = claims(composed(*words, *small), 3, 40)
    assert wrong == []
    assert counts[SPEED_ONLY, True] > 5
    assert counts[OTHER_DATA, False] > 5
    assert {answers[kind, PASSES, False] for kind in (DATA, ORDER)} == {0}
    assert min(answers[DATA, PASSES, True], answers[DATA, FAILS, False], answers[ORDER, PASSES, True]) > 5


@pytest.mark.slow
def test_trainings_differ_where_they_are_said_to(tiny: Path, tmp_path: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    small = ("transform.resize.size=[32,32]", f"cache.dir={tmp_path}", "trainer.epochs=2")
    trainer = Trainer(tmp_path)
    expected = {
        "load.batch_size=14": (OTHER_TRAINING, True, False, False),
        "load.drop_remainder=True": (OTHER_DATA, False, False, False),
        "load.prefetch=1": (SPEED_ONLY, True, True, True),
        "load.shuffle_buffer=0": (OTHER_TRAINING, True, False, True),
        "trainer.learning_rate=0.01": (OTHER_TRAINING, True, False, True),
    }
    alone = {name: (old, new) for name, old, new in singles(first_of(composed(*words, *small))) if name in expected}
    pairs = {name: trainer.pair(*both) for name, both in alone.items()}
    assert {name: (pair.said, *pair.equal.values()) for name, pair in pairs.items()} == expected
    assert [text for pair in pairs.values() for text in pair.wrong] == []


@pytest.mark.parametrize("split", ["train", "train[:80%]", "train[80%:]", "train[5:-7]", "train[:33%]+train[90%:]"])
def test_examples_are_counted_as_tfds_counts_them(split: str, tiny: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    dataset = spec_of(*words).dataset
    found = present(on_disk(dataset).examples(split))
    assert found.count == open_source(dataset).split(split, "dataset.split").num_examples
