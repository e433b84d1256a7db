"""Models that a function of Keras layers makes: of rows, of sequences, and those of installed packages."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from etlrun.stages.base import Natural, Positive, Rate, Training, selectable
from etlrun.stages.flow import Flow, UnfitError
from etlrun.stages.lazy import keras
from etlrun.stages.model import APPLICATIONS, ApplicationName, Model
from etlrun.stages.paths import OptionalPath


class Network(Model):
    """A model of layers between inputs by name and the head for the target, which etlrun puts behind them.

    A run calls its function, an ejected program contains its source, and the fingerprint of a run that of a package.

    Attributes:
        network: Static function from Keras inputs by name, each of at least one number (batch, ...), to features
            (batch, features). If it takes sequences, their masks, bool (batch, items) by name, are its second argument.
            It takes the fields of its class by name, and refers to nothing but its arguments,
            functions of its module, and `keras`, `tf` and `np` of `etlrun.stages.lazy`.
        takes_sequences: Whether inputs may be sequences (batch, items), or their vectors (batch, items, dimension).
        predicts: Whether `network` gives the prediction of the target itself, as its head does otherwise.
        num_heads: Heads whose mean is the prediction. Of several, the features are (batch, heads, features).
    """

    block = "model"
    network: ClassVar[Callable[..., Any]]
    takes_sequences: ClassVar[bool] = False
    predicts: ClassVar[bool] = False
    num_heads: int = 1
    trainable: bool = True
    weights: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `network` beside the inputs."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def flow(self, incoming: Flow) -> Flow:
        super().flow(incoming)
        for name in incoming.inputs:
            feature = incoming.features[name]
            if "/" in name:
                other = f"{{{name.replace('/', '_')}: {{of: {name}}}}}"
                remedy = f"give the output another name in transform.columns: {other}"
                raise UnfitError(f"inputs without a slash in their names, which Keras refuses, as in {name}", remedy)
            if feature.dtype == "string" or feature.format == "timestamp":
                raise UnfitError(f"numbers or categories, not {name}", "add steps to transform.columns")
            if feature.has_missing:
                raise UnfitError(f"a value of {name} in each row", "add {fill: median} to its steps")
            if feature.is_sequence and not self.takes_sequences:
                raise UnfitError(f"vectors, not sequences as {name}", "set model=text, or end its steps with multi_hot")
            if feature.is_sequence and feature.categories is None and feature.dtype.startswith("int"):
                remedy = "end its steps with standardize, or with lookup and embed"
                raise UnfitError(f"numbers of {name} as floats, or as vectors", remedy)
            if feature.categories is not None and feature.embedding is None:
                raise UnfitError(f"{name} as vectors", "end its steps with one_hot or embed")
        return incoming


def embedded(flow: Flow) -> dict[str, tuple[int, int]]:
    """Return the categories and the dimension of each input that is embedded."""
    found = ((name, flow.features[name]) for name in flow.inputs)
    return {name: (of.categories, of.embedding) for name, of in found if of.embedding and of.categories}


def masks(inputs: Mapping[str, Any], *, sequences: Sequence[str]) -> dict[str, Any]:
    """Return where the inputs that are `sequences` have items, and no padding, by name: bool (batch, items).

    The padding of categories is 0, that of numbers NaN.
    """
    found = {}
    for name in sequences:
        values = inputs[name]
        is_number = "float" in keras.backend.standardize_dtype(values.dtype)
        first = values if len(values.shape) == 2 else values[..., 0]  # noqa: PLR2004 - else an item has several numbers
        found[name] = keras.ops.logical_not(keras.ops.isnan(first)) if is_number else keras.ops.not_equal(first, 0)
    return found


def vectors(inputs: Mapping[str, Any], *, embedded: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Return inputs by name, each of at least one number: categories, which are `embedded`, as vectors.

    Sequences of numbers, of any length, are vectors (batch, items, numbers), with zeros for the padding.
    """
    found = {}
    for name, values in inputs.items():
        if name in embedded:
            categories, dimension = embedded[name]
            is_plain = name.isascii() and name.isidentifier()  # TensorFlow takes no other names of layers
            label = f"{name}_embedding" if is_plain else None
            found[name] = keras.layers.Embedding(categories, dimension, name=label)(values)
        elif len(values.shape) > 1 and values.shape[1] is None:
            numbers = keras.ops.where(keras.ops.isnan(values), 0.0, values)
            found[name] = keras.ops.expand_dims(numbers, -1) if len(values.shape) == 2 else numbers  # noqa: PLR2004
        else:
            found[name] = keras.layers.Reshape((1,))(values) if len(values.shape) == 1 else values
    return found


@selectable
class Tabular(Network):
    """Dense layers over all inputs side by side, of which the categories become vectors that are learned.

    Several heads share these layers (TabM; Gorishniy et al., arXiv 2410.24210): each multiplies the inputs by a vector
    of its own, and has an output layer of its own. The prediction is their mean, of numbers or of logits. Trained is
    the mean of their losses: it is the loss of their mean and a second term without the target, by how much they
    differ, which is part of the loss of the training alone. It counts all rows the same, whatever their weights.

    Attributes:
        units: Units of each hidden layer.
        dropout: Share of the units of each hidden layer that training drops.
        wide: Whether there is a linear part beside the hidden layers (wide and deep learning; Cheng et al. 2016).
        heads: Number of heads that share the hidden layers.
        frequencies: Frequencies, which are learned, of the sines and cosines of each number, of which a dense layer
            makes eight further inputs (PLR; arXiv 2203.05556); 0 for none.
    """

    path = "model.tabular"

    units: Training[tuple[Positive, ...]]
    dropout: Training[Rate]
    wide: Training[bool]
    heads: Training[Positive] = 1
    frequencies: Training[Natural] = 0

    @property
    def num_heads(self) -> int:  # type: ignore[override]
        return self.heads

    def notes(self, incoming: Flow) -> Iterator[str]:
        if incoming.weight and self.heads > 1:
            other = "not the part of the loss by which the heads differ"
            yield f"{self.key('heads')} = {self.heads}: {incoming.weight} weighs the loss of their mean, {other}."

    @staticmethod
    def network(
        inputs: Mapping[str, Any], *, units: tuple[int, ...], dropout: float, wide: bool, heads: int, frequencies: int
    ) -> Any:
        """Return the features (batch, features) from inputs (batch, ...) by name; of several heads those of each."""
        columns = [keras.layers.Flatten()(values) for values in inputs.values()]
        numbers = [values for values in columns if values.shape[-1] == 1]
        if frequencies and numbers:
            numbers = keras.layers.Concatenate()(numbers) if len(numbers) > 1 else numbers[0]
            shape, normal = (numbers.shape[-1], frequencies), keras.initializers.RandomNormal(0.0, 2.0)
            waves = keras.layers.EinsumDense("bd,df->bdf", output_shape=shape, kernel_initializer=normal)(numbers)
            waves = keras.ops.concatenate([keras.ops.sin(waves), keras.ops.cos(waves)], axis=-1)
            of_each = {"output_shape": (numbers.shape[-1], 8), "bias_axes": "de", "activation": "relu"}
            columns.append(keras.layers.Flatten()(keras.layers.EinsumDense("bdf,dfe->bde", **of_each)(waves)))
        features = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
        if heads > 1:
            shape, normal = (heads, features.shape[-1]), keras.initializers.RandomNormal(0.0, 1.0)
            features = keras.layers.EinsumDense("bd,kd->bkd", output_shape=shape, kernel_initializer=normal)(features)
        deep = features
        for count in units:
            deep = keras.layers.Dense(count, activation="relu")(deep)
            deep = keras.layers.Dropout(dropout)(deep) if dropout else deep
        return keras.layers.Concatenate()([deep, features]) if wide else deep


@selectable
class TwoTowers(Network):
    """A base of `keras.applications` over each image, beside dense layers over all other inputs.

    Several images share the base, and so its weights.

    Attributes:
        base: Image model of `keras.applications` without its top, whose features are averaged over the image.
        weights: `imagenet`, a file of weights, or null for a random start.
        trainable: Whether the base is trained, too.
        units: Units of each hidden layer.
        dropout: Share of all features that training drops, before the head.
    """

    path = "model.two_towers"

    base: Training[ApplicationName]
    weights: Training[OptionalPath]
    trainable: Training[bool]
    units: Training[tuple[Positive, ...]]
    dropout: Training[Rate]

    @property
    def features(self) -> int:  # type: ignore[override]
        return APPLICATIONS[self.base].features

    @property
    def restored(self) -> Self:
        return dataclasses.replace(self, weights=None)

    def flow(self, incoming: Flow) -> Flow:
        super().flow(incoming)
        known, images = APPLICATIONS[self.base], [incoming.features[name] for name in incoming.images]
        if not images:
            remedy = "name an image in transform.columns: {photo: {of: COLUMN, steps: [read, decode, …]}}"
            raise UnfitError("an image among the inputs", f"{remedy}, or set model=tabular")
        if len({image.shape for image in images}) > 1:
            raise UnfitError("images of one size, since they share the base", "give their `resize` one size")
        if min(side or 0 for side in images[0].shape[:2]) < known.smallest:
            remedy = f"give their `resize` at least [{known.smallest}, {known.smallest}]"
            raise UnfitError(f"images of at least {known.smallest}x{known.smallest} pixels", remedy)
        if not all(known.preprocessing.fits(image) for image in images):
            raise UnfitError(f"{known.preprocessing.expected} for {self.base}", known.preprocessing.remedy)
        return incoming

    @staticmethod
    def network(
        inputs: Mapping[str, Any],
        *,
        base: str,
        weights: str | None,
        trainable: bool,
        units: tuple[int, ...],
        dropout: float,
    ) -> Any:
        """Return the features (batch, features) from inputs by name: images (batch, height, width, 3), and others."""
        images = [values for values in inputs.values() if len(values.shape) == 4]  # noqa: PLR2004
        columns = [keras.layers.Flatten()(values) for values in inputs.values() if len(values.shape) < 4]  # noqa: PLR2004
        shape = images[0].shape[1:]
        tower = getattr(keras.applications, base)(include_top=False, weights=weights, pooling="avg", input_shape=shape)
        tower.trainable = trainable
        found = [tower(image) for image in images]
        if columns:
            deep = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
            for count in units:
                deep = keras.layers.Dense(count, activation="relu")(deep)
            found.append(deep)
        features = keras.layers.Concatenate()(found) if len(found) > 1 else found[0]
        return keras.layers.Dropout(dropout)(features) if dropout else features


@selectable
class TextModel(Network):
    """Layers over the vectors of each sequence, whose result stands beside the other inputs.

    Attributes:
        layer: `pool` takes the mean of the vectors, `conv` the largest values of a convolution over three items, `gru`
            the last state of a gated recurrent unit.
        units: Units of the layer, and of the dense layer behind it.
        dropout: Share of the vectors' and the units' values that training drops.
    """

    path = "model.text"
    takes_sequences = True

    layer: Training[Literal["pool", "conv", "gru"]]
    units: Training[Positive]
    dropout: Training[Rate]

    @staticmethod
    def network(inputs: Mapping[str, Any], masks: Mapping[str, Any], *, layer: str, units: int, dropout: float) -> Any:
        """Return the features (batch, features) from inputs (batch, ...) by name, of which sequences have masks."""
        columns = []
        for name, values in inputs.items():
            if name not in masks:
                columns.append(keras.layers.Flatten()(values))
                continue
            there = keras.ops.cast(keras.ops.expand_dims(masks[name], -1), values.dtype)
            is_number = values.shape[-1] == 1  # of which nothing is left if it is dropped
            items = (values if is_number else keras.layers.Dropout(dropout)(values)) * there
            if layer == "gru":
                columns.append(keras.layers.GRU(units)(items, mask=masks[name]))
            elif layer == "conv":
                found = keras.layers.Conv1D(units, 3, padding="same", activation="relu")(items)
                columns.append(keras.layers.GlobalMaxPooling1D()(found * there))
            else:
                columns.append(keras.ops.sum(items, axis=1) / keras.ops.maximum(keras.ops.sum(there, axis=1), 1))
        features = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
        features = keras.layers.Dense(units, activation="relu")(features)
        return keras.layers.Dropout(dropout)(features)
