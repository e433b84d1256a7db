"""What a diff tells of rows: their numbers, and what columns have learned from them, by column."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.review.difference import Comparison, compare, of_columns
from etlrun.stages.base import DATA
from etlrun.stages.column_categories import Lookup, Quantiles
from etlrun.stages.columns import Columns, Output
from tests.configs import spec_of

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


def test_what_columns_have_learned_otherwise_is_told_by_column_and_value(tmp_path: Path) -> None:
    """As after a file has got other rows: what was asked for is the same."""
    file, since = tmp_path / "houses.csv", "transform.columns"
    old = planned(file, "1,flat,3\n2,flat,3\n3,loft,3\n,loft,4\n")
    new = planned(file, "1,flat,3\n2,flat,3\n6,house,3\n,house,4\n7,house,5\n")
    found = compare(old, new)
    assert (found.headline, found.doubts) == ("changes the data, from the dataset on", ())
    assert told(found) == [
        ("dataset.rows", "4 of train", "5 of train", "the dataset"),
        ("transform.columns.area.fill.filled", "2", "4", since),
        ("transform.columns.area.standardize.mean", "2", "4", since),
        ("transform.columns.area.standardize.std", "0.7071", "2.28", since),
        ("transform.columns.kind.lookup.vocabulary", "2 values", "2 values: 1 added (house), 1 removed (loft)", since),
        ("transform.columns.rank.quantiles.boundaries", "[1, 2]", "[1.333, 4.667]", since),
        ("transform.columns.price.number.mean", "3.25", "3.6", since),
        ("transform.columns.price.number.std", "0.433", "0.8", since),
    ]


def test_values_of_a_config_are_told_as_the_whole_output_that_they_change(tmp_path: Path) -> None:
    """What is learned then follows from them."""
    rows = "1,flat,3\n2,flat,3\n3,loft,3\n,loft,4\n"
    old = planned(tmp_path / "houses.csv", rows)
    new = planned(tmp_path / "houses.csv", rows, (STEPS[0].replace("median", "mean"), *STEPS[1:]))
    assert told(compare(old, new)) == [
        (
            "transform.columns.area",
            "area: fill median (2), standardize (mean 2, std 0.7071)",
            "area: fill mean (2), standardize (mean 2, std 0.7071)",
            "transform.columns",
        )
    ]


VOCABULARIES = [
    ((1, 2, 3), (1, 3, 2), "3 values: the same ones, in another order from 3 on"),
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


def test_long_boundaries_are_told_where_they_differ() -> None:
    many = tuple(float(of) for of in range(9))
    sides = (many, (*many[:3], 3.00001, *many[4:7], 7.5, 8.0), many[:-1])
    steps = [(Quantiles(count=10, boundaries=of), Quantiles(count=2, boundaries=(0.0,))) for of in sides]
    found = [Columns(outputs=(Output(name="x", of=("x",), steps=of),)) for of in steps]
    told = [(of.path, of.old, of.new) for other in found[1:] for of in of_columns(found[0], other)]
    key = "transform.columns.x.quantiles[0].boundaries"
    assert told == [(key, "9 values", "9 values: 3.0 -> 3.00001, 7 -> 7.5"), (key, "9 values", "8 values")]


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
