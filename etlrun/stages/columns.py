"""Columns: each output of a dataset, from one or several of its columns through steps, which work on whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Annotated, Any, Literal, Self

from etlrun.stages.base import DATA, Data, Expected
from etlrun.stages.column_categories import CATEGORIES, Classes, Embed, Lookup
from etlrun.stages.column_numbers import (
    LARGEST,
    NUMBERS,
    ColumnStep,
    Fill,
    Learned,
    Missing,
    Values,
    number,
    without_missing,
)
from etlrun.stages.column_text import TEXTS
from etlrun.stages.flow import NUMBER, Feature, Flow, UnfitError
from etlrun.stages.lazy import pa, pc, tf
from etlrun.stages.rows import BETWEEN
from etlrun.stages.step import Step
from etlrun.system.errors import counted, printable
from etlrun.system.values import frozen


def narrowed(values: tf.Tensor) -> tf.Tensor:
    """Return float64 values and truth values as float32, and all others as they are."""
    return tf.cast(values, tf.float32) if values.dtype in (tf.float64, tf.bool) else values


@frozen
class Output:
    """One output of `transform.columns`.

    Attributes:
        name: Its name, by which the model gets it.
        of: Columns that it is made of, or outputs above it; one, unless the first step takes several.
        steps: Steps in the order in which they are applied.
        image: What its column is, if it is an image: an encoded one, or the path of a file; None for others.
        of_image: Steps on the image, which stand behind the columns in a map.
    """

    name: str
    of: tuple[str, ...]
    steps: tuple[ColumnStep, ...] = ()
    image: Literal["image", "image file"] | None = None
    of_image: tuple[Step, ...] = ()

    def given(self, example: Mapping[str, Any]) -> Any:
        """Return the output for an example, or for a batch of them, of the features by name."""
        return narrowed(self.behind(self.steps, example))

    def behind(self, steps: Sequence[ColumnStep], example: Mapping[str, Any]) -> Any:
        """Return the values of its columns after some of its steps."""
        value: Any = example[self.of[0]] if len(self.of) == 1 else tuple(example[name] for name in self.of)
        for step in steps:
            value = step.applied(value)
        return value

    def fitted(self, features: Mapping[str, Feature], values: Values) -> tuple[Output, Feature]:
        """Return the output whose steps have learned what they do from a split, and its feature.

        `values` returns the values of its columns after some of its steps, as `ColumnStep.fitted` takes them. Raises
        `UnfitError` for the first step that doesn't accept what is before it.
        """
        given: Any = tuple(features[name] for name in self.of)
        given = given[0] if len(given) == 1 else given
        done: list[ColumnStep] = []
        for place, step in enumerate(self.steps):
            try:
                made = step.opened()
                made.gives(given)
                made = made if made.is_fitted else made.fitted(partial(values, tuple(done)), given)
                after = made.gives(given)
            except UnfitError as unfit:
                unfit.place = place
                unfit.found = unfit.found or (" and ".join(map(str, given)) if isinstance(given, tuple) else str(given))
                raise
            given = after
            done.append(made)
        if given.dtype == "float64" and max(abs(given.low or 0), abs(given.high or 0)) > LARGEST:
            expected = f"numbers of at most {LARGEST:.4g}, since a model takes float32"
            remedy = "repair them, or put `clip` or `standardize` behind the other steps"
            raise UnfitError(expected, remedy, f"numbers from {given.low:g} to {given.high:g}", len(self.steps))
        last: Feature = given.replace(dtype="float32") if given.dtype in ("float64", "bool") else given
        return replace(self, steps=tuple(done)), last

    def gives(self, features: Mapping[str, Feature]) -> Feature:
        """Return its feature; raise `UnfitError` for the first step that doesn't accept what is before it."""
        return self.fitted(features, nothing)[1]

    @property
    def described(self) -> dict[str, Any]:
        """The output as plain values: what it is made of, and each step with its parameters."""
        steps = [{step.name: step.described} for step in self.steps]
        return {"of": list(self.of), "steps": steps}

    @property
    def text(self) -> str:
        """What it is made of and its steps, in a line of printable characters."""
        steps = ", ".join(step.text for step in self.steps)
        unknown = next((step.oov for step in reversed(self.steps) if isinstance(step, Lookup)), None)
        if self.steps and isinstance(self.steps[-1], Embed) and self.steps[-1].padding:
            first = "1 is" if unknown == 1 else f"1 to {unknown} are"
            steps += f" (0 is padding{f', {first} unknown' if isinstance(unknown, int) else ''})"
        return printable(f"<- {', '.join(self.of)}{f': {steps}' if steps else ''}")

    @property
    def is_of_target(self) -> bool:
        """Whether it is that of a target, with a step that no config names."""
        return any(step.name not in COLUMN_STEPS for step in self.steps)

    @property
    def has_sequences(self) -> bool:
        """Whether its steps end with a sequence, of tokens."""
        of = [step.gives_sequences for step in self.steps if step.of_sequences]
        return bool(of) and of[-1]

    @property
    def indicator(self) -> Output | None:
        """The output that says where a value was missing; None unless its `fill` has an indicator."""
        for place, step in enumerate(self.steps):
            if isinstance(step, Fill) and step.indicator:
                return Output(name=f"{self.name}_missing", of=self.of, steps=(*self.steps[:place], Missing()))
        return None

    @property
    def indicator_of(self) -> str | None:
        """Name of the output whose indicator it may be; None if it is none."""
        is_one = bool(self.steps) and isinstance(self.steps[-1], Missing) and self.name.endswith("_missing")
        return self.name.removesuffix("_missing") if is_one else None


def nothing(_steps: Sequence[ColumnStep], **_how: bool) -> pa.Array:
    """Refuse to return values of a dataset that is not read by columns; raise `UnfitError`."""
    values = "give all values of the step, such as {standardize: {mean: 0, std: 1}}"
    remedy = f"{values}, or read its TFRecord files as rows: dataset=table"
    expected = "its values, since this dataset is not read by columns"
    raise UnfitError(expected, remedy, "a step that learns from the training split")


def with_indicators(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Return the outputs, each followed by its indicator, if it has one."""
    return tuple(each for output in outputs for each in (output, output.indicator) if each is not None)


@frozen
class Columns(Step):
    """Makes the inputs and the target of rows, or further inputs of other examples: each output from some columns.

    Attributes:
        outputs: The outputs; none before they are chosen.
        dropped: Features of other examples than rows that are no longer inputs.
        is_auto: Whether the outputs are chosen when the rows have been read.
        beside: Whether the other features stay, since the examples are no rows.
        assumed: Features of the outputs where the rows are not on this machine, so that they are neither chosen nor
            fitted; none otherwise.
        chosen: What `auto` has chosen, before it was fitted.
        shares: What is missing or unknown in the columns of an output, for people.
        notes: Notes for the reader, one sentence each.
    """

    path = "transform.columns"

    outputs: Annotated[tuple[Output, ...], Expected("a mapping from names to columns, or auto"), DATA]
    dropped: Data[tuple[str, ...]] = ()
    is_auto: bool = False
    beside: bool = False
    assumed: tuple[tuple[str, Feature], ...] = ()
    chosen: tuple[Output, ...] = field(default=(), compare=False)
    shares: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def described(self) -> dict[str, Any]:
        """Return the outputs by name as plain values: what each is made of, and its steps with their parameters."""
        return {output.name: output.described for output in self.outputs}

    def plain(self, name: str) -> Any:
        return self.described() if name == "outputs" else super().plain(name)

    def given(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs by name, for an example or for a batch of them; other features only beside rows."""
        found, known = dict[str, Any](), {**example}
        for output in self.outputs:
            found[output.name] = output.given(known)
            known.setdefault(output.name, found[output.name])
        stays = example if self.beside else {NUMBER: example[NUMBER]} if NUMBER in example else {}
        return {name: value for name, value in {**stays, **found}.items() if name not in self.dropped}

    def flow(self, incoming: Flow) -> Flow:
        if self.assumed:
            return incoming.replace(features=dict(self.assumed))
        if not self.outputs and not self.dropped:
            return incoming
        found, known = dict[str, Feature](), {**incoming.features}
        for output in self.outputs:
            found[output.name] = output.gives(known)
            known.setdefault(output.name, found[output.name])
        stays = incoming.features if self.beside else {}
        left = {name: of for name, of in {**stays, **found}.items() if name not in self.dropped}
        return incoming.replace(features=left)

    @property
    def of_images(self) -> tuple[Step, ...]:
        """The steps on all images."""
        return tuple(step for output in self.outputs for step in output.of_image)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(output.name for output in self.outputs)

    @property
    def makers(self) -> tuple[Callable[..., Any], ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(step.op for output in self.outputs for step in output.steps))

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """Each output with what it is made of, in a line for people."""
        shares = dict(self.shares)
        for output in self.outputs:
            yield output.name, "; ".join(filter(None, [output.text, shares.get(output.name, "")]))
        yield from ((name, "dropped") for name in self.dropped)


COLUMN_STEPS: dict[str, type[ColumnStep]] = {step.name: step for step in (*NUMBERS, *CATEGORIES, *TEXTS)}
"""All steps on columns by their names in a config."""


MOST_LABELS = 10_000


@frozen
class Binary(Classes):
    """The index of one of two classes, of which the positive one is 1; a plan puts it behind a binary target."""

    name = "binary"

    def fitted(self, values: Values, incoming: Feature) -> Self:
        found = super().fitted(values, incoming).values or ()
        positive = ("1", "true", "yes")
        return self.replace(values=tuple(sorted(found, key=lambda value: str(value).casefold() in positive)))

    def gives(self, incoming: Feature) -> Feature:
        return super().gives(incoming).replace(is_binary=True)


@frozen
class Number(ColumnStep):
    """The number to predict; a plan puts it behind a target that is a number.

    Attributes:
        standardize: Whether the loss counts it in standard deviations, which the last layer of the model undoes.
        mean: Mean of the training split. `std` is its standard deviation, `least` the smallest value.
    """

    name = "number"
    learned = ("mean", "std", "least")

    standardize: Data[bool] = False
    mean: Learned[float] = None
    std: Learned[float] = None
    least: Learned[float] = None

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return the numbers as float32."""
        return tf.cast(values, tf.float32)

    def fitted(self, values: Values, incoming: Feature) -> Self:
        found = values().cast(pa.float64(), safe=False)
        mean, std, least = pc.mean(found).as_py(), pc.stddev(found).as_py(), pc.min(found).as_py()
        most = pc.max(found).as_py() or 0
        if max(abs(least or 0), abs(most)) > LARGEST:
            expected = f"numbers of at most {LARGEST:.4g}, since a model predicts float32"
            remedy = "repair them, or write them in a larger unit"
            raise UnfitError(expected, remedy, f"numbers from {least:g} to {most:g}")
        return self.replace(mean=mean, std=std, least=least)

    def gives(self, incoming: Feature) -> Feature:
        std = self.std if self.standardize else None
        return number(without_missing(incoming)).replace(dtype="float32", mean=self.mean, std=std)


@frozen
class Labels(ColumnStep):
    """A 1 for each label of a row, and a 0 for all others; a plan puts it behind a target of several labels.

    Attributes:
        separator: Text between two labels; None if the column has a number for each.
        values: The labels, in order.
    """

    name = "labels"
    learned = ("values",)

    separator: Data[str | None] = None
    values: Learned[tuple[str, ...]] = None

    @property
    def text(self) -> str:
        text = super().text
        return text if self.separator != BETWEEN else text.replace(f"separator {BETWEEN}", "of lists")

    @staticmethod
    def op(found: tf.Tensor, *, separator: str | None, values: list[str]) -> tf.Tensor:
        """Return float32 vectors with a place for each label; a text that is missing has none of them."""
        if separator is None:
            return tf.cast(found, tf.float32)
        texts = tf.reshape(found, [-1])
        parts = tf.strings.split(texts, separator)
        labels = tf.strings.strip(parts.flat_values)
        is_label = (labels != "") & (labels != b"\xff")
        labels, rows = tf.boolean_mask(labels, is_label), tf.boolean_mask(parts.value_rowids(), is_label)
        keys, numbers = tf.constant(values, tf.string), tf.range(len(values), dtype=tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), -1)
        index = table.lookup(labels)
        known = tf.debugging.Assert(tf.reduce_all(index >= 0), ["a label that is in no row of the training", labels])
        with tf.control_dependencies([known]):
            places = tf.stack([rows, index], axis=1)
        shape = tf.stack([tf.size(texts, tf.int64), len(values)])
        counts = tf.scatter_nd(places, tf.ones_like(index, tf.float32), shape)
        each = tf.reshape(tf.minimum(counts, 1.0), tf.concat([tf.shape(found), [len(values)]], 0))
        return tf.ensure_shape(each, [*found.shape, len(values)])

    def fitted(self, values: Values, incoming: Feature) -> Self:
        if self.separator is None:
            return self.replace(values=tuple(map(str, range(incoming.shape[0] or 0))))
        found = labels_in(values(), self.separator)
        if not found or len(found) > MOST_LABELS:
            remedy = "name the text between two labels of a row: {labels: ','}"
            count = f"{counted(len(found), 'label')} in the training split"
            raise UnfitError(f"from 1 to {MOST_LABELS:,} different ones", remedy, count)
        return self.replace(values=found)

    def gives(self, incoming: Feature) -> Feature:
        shape = (len(self.values or ()),)
        return Feature(dtype="float32", shape=shape, low=0.0, high=1.0, is_labels=True, classes=self.values or ())


def labels_in(values: pa.Array, separator: str) -> tuple[str, ...]:
    """Return the different labels of texts (`large_binary`), in order."""
    texts = values.drop_null().unique().cast(pa.large_string())
    labels = pc.ascii_trim_whitespace(pc.split_pattern(texts, separator).flatten()).unique()
    return tuple(sorted(label for label in labels.to_pylist() if label))


@frozen
class Weight(ColumnStep):
    """The weight of a row in the loss; a plan puts it behind `dataset.weight`."""

    name = "weight"

    @staticmethod
    def op(values: tf.Tensor) -> tf.Tensor:
        """Return the weights as float32."""
        return tf.cast(values, tf.float32)

    def gives(self, incoming: Feature) -> Feature:
        return number(without_missing(incoming)).replace(dtype="float32")


def checked(
    example: Mapping[str, tf.Tensor], indices: Mapping[str, tf.Tensor], weight: str = ""
) -> dict[str, tf.Tensor]:
    """Return an example by name; a target that is not among its `indices`, from 0 on, is an error.

    So is a weight that is negative, or not finite. Looking up an index is the cheapest check.
    """
    found = {**example, **{name: tf.gather(of, example[name]) for name, of in indices.items()}}
    if weight:
        number = tf.cast(example[weight], tf.float32)
        is_weight = tf.reduce_all((number >= 0) & tf.math.is_finite(number))
        with tf.control_dependencies([tf.debugging.Assert(is_weight, ["a weight below 0", example[weight]])]):
            found[weight] = tf.identity(example[weight])
    return found


TARGET_STEPS: dict[str, type[ColumnStep]] = {step.name: step for step in (Classes, Binary, Labels, Number, Weight)}
"""Steps on targets and on weights by their names, which no config has."""


def outputs_of(described: Mapping[str, Any]) -> tuple[Output, ...]:
    """Return the outputs that `Columns.described` describes."""
    kinds = {**COLUMN_STEPS, **TARGET_STEPS}

    def step(name: str, fields: Mapping[str, Any]) -> ColumnStep:
        return kinds[name](**{key: tuple(of) if isinstance(of, list) else of for key, of in fields.items()})

    return tuple(
        Output(name=name, of=tuple(of["of"]), steps=tuple(step(*item) for each in of["steps"] for item in each.items()))
        for name, of in described.items()
    )
