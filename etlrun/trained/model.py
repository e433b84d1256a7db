"""The model of a run, loaded for use, on the backend that trained it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from etlrun.record.record import MODEL
from etlrun.run.backend import prepare
from etlrun.stages.dataset import Dataset, TFRecords
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import keras, tf
from etlrun.stages.rows import Arrays, Table, TextFolder
from etlrun.system.errors import WorldError, counted, first_few
from etlrun.system.loading import pip_install
from etlrun.system.terminal import say_note
from etlrun.system.values import Block
from etlrun.trained.load import Trained, model_again
from etlrun.trained.scores import Array, Ints, Outputs

if TYPE_CHECKING:
    from etlrun.sources.base import Source


_VARIABLE = "KERAS_BACKEND"
_MOST_NAMED = 20
"""Classes that a message names."""

Tested = tuple[Block, float, Block]
Test = Callable[..., Tested]
"""From inputs, targets and weights of a batch to predictions (batch, outputs) by target, of two classes of each, the
loss, as Keras's `test_step` computes it, and the logits of those targets that `_with_logits` finds."""


@contextlib.contextmanager
def ready(run: Trained, *others: str) -> Iterator[Any]:
    """Start the backend of the run, or one of `others`, with its device and its precision, and yield its model.

    Raises:
        WorldError: The backend, the GPU or the model is missing, or Keras can't load the model.
    """
    name = run.backend
    if name and "keras" not in sys.modules and importlib.util.find_spec(name) is None and _VARIABLE not in os.environ:
        raise WorldError(
            str(run.folder),
            f"a run of the backend {name}, which is not installed",
            "the backend that trained the model",
            f"{pip_install(name)}, or set the environment variable {_VARIABLE}=tensorflow",
        )
    if name and "keras" not in sys.modules:
        os.environ.setdefault(_VARIABLE, name)
    with prepare(run.trainer, *others) as backend:
        if name and backend.name != name:
            say_note(f"Trained with {name}, and used with {backend.name}: outputs differ by rounding.")
        if backend.unseen:
            say_note(backend.unseen)
        from etlrun.run.model import finish, loaded  # also registers the losses that a saved model names

        model = loaded(run.path, "the complete model that the run saved", model_again(run.folder))
        if run.path.name != MODEL:  # a checkpoint, which has the averages of its weights beside them
            finish(model)
        yield model


def by_target(flow: Flow, found: Any) -> Block:
    """Return what a model has for each of its targets, of which a single one has no name there."""
    return dict(found) if isinstance(found, Mapping) else {flow.target: found}


def outputs_of(model: Any, flow: Flow) -> dict[str, int]:
    """Return the number of outputs of each target: of two classes each has its own."""
    targets = by_target(flow, model.output).items()
    return {name: max(of.shape[-1], 1 + flow.features[name].is_binary) for name, of in targets}


def of_each_class(flow: Flow, found: Any) -> Block:
    """Return predictions (batch, outputs) by target, with a probability of each class, also where a model gives one."""
    several = by_target(flow, found)
    for name, of in several.items():
        if flow.features[name].is_binary and of.shape[-1] == 1:
            join = np.concatenate if isinstance(of, np.ndarray) else keras.ops.concatenate
            several[name] = join([1 - of, of], axis=-1)
    return {name: several[name] for name in flow.targets}


def _with_logits(model: Any, flow: Flow) -> Any:
    """Return a model of `predictions`, those of `model`, and of the `logits` of those that are probabilities."""
    dense, known, logits = keras.layers.Dense, (keras.activations.softmax, keras.activations.sigmoid), {}
    found = by_target(flow, model.output)
    for name, output in [*found.items()]:
        heads = [of for of in model.layers if isinstance(of, dense) and of.activation in known and of.output is output]
        for head in heads:
            bare = dense.from_config({**head.get_config(), "activation": None})
            logits[name] = bare(head.input)
            bare.set_weights(head.get_weights())
            found[name] = keras.layers.Activation(head.activation, dtype="float32")(logits[name])
        behind = [of for of in model.layers if isinstance(of, keras.layers.Activation) and of.output is output]
        if behind and behind[0].activation in known:  # as behind several heads
            logits[name] = behind[0].input
    predictions = found if isinstance(model.output, Mapping) else found[flow.target]
    return keras.Model(model.input, {"predictions": predictions, "logits": logits})


def tester(model: Any, flow: Flow, inputs: Any, *specs: Any) -> Test:
    """Return the function from inputs and what is wanted, targets and weights, to predictions, the loss and logits.

    Its arguments are specs of these. Without targets the loss is 0. As the logits are given with and
    without them, TensorFlow fuses no layer with its activation, and predictions are the same, also close to 0 and 1.
    """
    whole, as_arrays = _with_logits(model, flow), functools.partial(keras.tree.map_structure, np.asarray)
    if keras.backend.backend() != "tensorflow":

        def compute(given: Any, *wanted: Any) -> tuple[Any, Any]:
            found = as_arrays(whole.predict_on_batch(as_arrays(given)))
            if not wanted:
                return found, 0.0
            each = (wanted[0], found["predictions"], *wanted[1:])
            return found, model.compute_loss(None, *keras.tree.map_structure(keras.ops.convert_to_tensor, each))

    else:

        def traced(given: Any, *wanted: Any) -> tuple[Any, Any]:
            found = whole(given, training=False)
            if not wanted:
                return found, 0.0
            return found, model.compute_loss(given, wanted[0], found["predictions"], *wanted[1:], training=False)

        function = tf.function(traced, [inputs, *specs], jit_compile=model.jit_compile, autograph=False)
        compute = function.get_concrete_function()  # TensorFlow would warn of each that is called after others were

    def test(given: Any, *wanted: Array) -> Tested:
        found, loss = compute(given, *wanted)
        found = as_arrays(found)
        return of_each_class(flow, found["predictions"]), float(loss), found["logits"]

    return test


def require_finite(run: Trained, outputs: Outputs, numbers: Ints, reading: Any) -> None:
    """Raise `WorldError` if predictions (examples, ...) are not finite; `reading` has the places of their numbers."""
    wrong = np.flatnonzero(~np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1))
    if len(wrong):
        many, first = f"{len(wrong):,} of {counted(len(outputs), 'example')}", reading.place(int(numbers[wrong[0]]))
        raise WorldError(
            str(run.path),
            f"predictions that are not finite for {many} (first: {first})",
            "finite predictions",
            "train again with a smaller trainer.learning_rate: the training has diverged",
        )


def same_classes(run: Trained, source: Source, outputs: Mapping[str, int]) -> None:
    """Raise `WorldError` if a dataset has other classes than the only target of a model; labels are named apart."""
    (target, count), *others = outputs.items()
    if others or run.flow.features[target].is_labels:
        return
    then, now, found = run.class_names, source.class_names, ""
    if then is not None and now is not None and then != now:
        found = f"the classes {first_few(now, _MOST_NAMED)}"
        expected = f"{first_few(then, _MOST_NAMED)}, which the model was trained on"
    elif source.num_classes is not None and source.num_classes != count:
        found, expected = f"{source.num_classes} classes", f"{count}, which the model was trained on"
    if found:
        remedy = "choose a dataset with the same classes in the same order"
        raise WorldError(source.full_name, found, expected, remedy)


def data_of(dataset: Dataset, source: Source) -> str:
    """Return the name of a dataset that no other one has: of files the whole patterns, of texts the whole folder."""
    if isinstance(dataset, TFRecords | Table | Arrays | TextFolder):
        return ", ".join(dict.fromkeys(chain(*dataset.patterns.values())))
    return source.full_name


def is_of_run(run: Trained, source: Source) -> bool:
    """Return whether the dataset of the command is that of the training."""
    now, then = (data_of(planned.spec.dataset, source) for planned in (run.plan, run.then))
    return source.full_name == run.summary.dataset.name and now == then


def unchecked(run: Trained, source: Source) -> str:
    """Return that a dataset may have the classes of the model in another order; empty if their names tell."""
    flow = run.then.spec.dataset.examples
    if not flow.features[flow.target].is_class or is_of_run(run, source):
        return ""
    each = ((data_of(run.plan.spec.dataset, source), source.class_names), ("the run", run.class_names))
    unnamed = [whose for whose, names in each if names is None or names == tuple(map(str, range(len(names))))]
    names = run.class_names or source.class_names or ()
    which = f" ({first_few(names, _MOST_NAMED)})" if names else ""
    text = f"it can't be checked whether the data has them in the order of the model's outputs{which}."
    return f"The classes of {' and of '.join(unnamed)} have no names: {text}" if unnamed else ""
