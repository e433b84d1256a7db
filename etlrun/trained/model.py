"""The model of a run, loaded for use, on the backend that trained it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etlrun.config.overrides import of_path
from etlrun.config.request import RESUME
from etlrun.record.record import MODEL
from etlrun.run.backend import prepare
from etlrun.system.errors import WorldError
from etlrun.system.terminal import say_note
from etlrun.trained.load import Trained

if TYPE_CHECKING:
    from etlrun.sources.base import Source  # imports TensorFlow, which `ready` starts quietly

_VARIABLE = "KERAS_BACKEND"

Predict = Callable[[Any], npt.NDArray[np.float32]]
"""From the inputs of a batch to predictions (batch, outputs)."""
Test = Callable[..., tuple[Any, float, Any]]
"""From inputs, targets and weights of a batch to predictions, of several targets by name, the loss, as Keras's
`test_step` computes it, and the logits by target as `_with_logits` has them."""


@contextlib.contextmanager
def ready(run: Trained) -> Iterator[Any]:
    """Start the backend of the run with its device and its precision, and yield its model.

    Raises:
        WorldError: The backend, the GPU or the model is missing, or Keras can't load the model.
    """
    name = run.backend
    if name and "keras" not in sys.modules and importlib.util.find_spec(name) is None and _VARIABLE not in os.environ:
        raise WorldError(
            where=str(run.folder),
            found=f"a run of the backend {name}, which is not installed",
            expected="the backend that trained the model",
            remedy=f"pip install 'etlrun[{name}]', or set the environment variable {_VARIABLE}=tensorflow",
        )
    if name and "keras" not in sys.modules:
        os.environ.setdefault(_VARIABLE, name)
    with prepare(run.trainer) as backend:
        if name and backend.name != name:
            say_note(f"Trained with {name}, and used with {backend.name}: outputs differ by rounding.")
        if backend.unseen:
            say_note(backend.unseen)
        from etlrun.run.model import finish, loaded  # also registers the losses that a saved model names

        remedy = f"restore it, or save it again: etlrun {of_path(RESUME, run.folder)}"
        model = loaded(run.path, "the complete model that the run saved", remedy)
        if run.path.name != MODEL:  # a checkpoint, which has the averages of its weights beside them
            finish(model)
        yield model


def outputs_of(model: Any) -> int:
    """Return the number of outputs of an example: of two classes each has its own, which `tester` makes of the one."""
    return 2 if _is_binary(model) else int(model.output_shape[-1])


def _is_binary(model: Any) -> bool:
    """Return whether a model gives the probability of the second of two classes, and nothing else."""
    return not isinstance(model.output_shape, dict) and bool(
        model.output_shape[-1] == 1 and model.layers[-1].name.rstrip("_") == "probability"
    )


def of_each_class(model: Any, found: Any) -> Any:
    """Return predictions (batch, outputs) with a probability of each class, also of two of which a model gives one."""
    if not _is_binary(model):
        return found
    if isinstance(found, np.ndarray):
        return np.concatenate([1 - found, found], axis=-1)
    import keras

    return keras.ops.concatenate([1 - found, found], axis=-1)


def _with_logits(model: Any) -> Any:
    """Return a model of `predictions`, those of `model`, and of their `logits` by target, "" for the only one.

    Predictions that no dense layer with a softmax or a sigmoid gives have no logits.
    """
    import keras

    dense, known, logits = keras.layers.Dense, (keras.activations.softmax, keras.activations.sigmoid), {}
    outputs = model.output if isinstance(model.output, dict) else {"": model.output}
    found = dict(outputs)
    for name, output in outputs.items():
        heads = [of for of in model.layers if isinstance(of, dense) and of.activation in known and of.output is output]
        for head in heads:
            bare = dense.from_config({**head.get_config(), "activation": None})
            logits[name] = bare(head.input)
            bare.set_weights(head.get_weights())
            found[name] = keras.layers.Activation(head.activation, dtype="float32")(logits[name])
    return keras.Model(model.input, {"predictions": found.get("", found), "logits": logits})


def predictor(model: Any, inputs: Any) -> Predict:
    """Return the function from inputs to predictions; `inputs` are their specs, for which it is traced once."""
    test = tester(model, inputs)
    return lambda given: test(given)[0]


def tester(model: Any, inputs: Any, *specs: Any) -> Test:
    """Return the function from inputs and what is wanted, targets and weights, to predictions, the loss and logits.

    Its arguments are specs of these. Without targets the loss is 0. As the logits are given with and
    without them, TensorFlow fuses no layer with its activation, and predictions are the same, also close to 0 and 1.
    """
    import keras

    whole, as_arrays = _with_logits(model), functools.partial(keras.tree.map_structure, np.asarray)
    if keras.backend.backend() != "tensorflow":

        def test(given: Any, *wanted: npt.NDArray[Any]) -> tuple[Any, float, Any]:
            found = as_arrays(whole.predict_on_batch(as_arrays(given)))
            targets, *weight = keras.tree.map_structure(keras.ops.convert_to_tensor, wanted) or (None,)
            tensors = targets, keras.tree.map_structure(keras.ops.convert_to_tensor, found["predictions"]), *weight
            loss = float(model.compute_loss(None, *tensors)) if wanted else 0.0
            return of_each_class(model, found["predictions"]), loss, found["logits"]

        return test
    import tensorflow as tf

    def traced(given: Any, *wanted: Any) -> tuple[Any, Any]:
        found = whole(given, training=False)
        of = found["predictions"]
        loss = model.compute_loss(given, wanted[0], of, *wanted[1:], training=False) if wanted else 0.0
        return found, loss

    function = tf.function(traced, input_signature=[inputs, *specs], jit_compile=model.jit_compile, autograph=False)
    compute = function.get_concrete_function()  # TensorFlow would warn of each that is called after others were traced

    def on_batch(given: Any, *wanted: npt.NDArray[Any]) -> tuple[Any, float, Any]:
        found, loss = compute(given, *wanted)
        found = as_arrays(found)
        return of_each_class(model, found["predictions"]), float(loss), found["logits"]

    return on_batch


def require_finite(run: Trained, outputs: npt.NDArray[np.float32], places: Callable[[int], str]) -> None:
    """Raise `WorldError` if predictions (examples, ...) are not finite; `places` names an example by its row."""
    wrong = np.flatnonzero(~np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1))
    if len(wrong):
        many = f"{len(wrong):,} of {len(outputs):,} examples"
        raise WorldError(
            where=str(run.path),
            found=f"predictions that are not finite for {many}, the first of which is {places(int(wrong[0]))}",
            expected="finite predictions",
            remedy="train again with a smaller trainer.learning_rate: the training has diverged",
        )


def class_names(run: Trained, outputs: int) -> tuple[str, ...] | None:
    """Return the names of the classes, by number where the run did not note them; None if the target is no class."""
    flow = run.then.spec.dataset.examples
    if not flow.features[flow.target].is_class:
        return None
    return run.class_names or tuple(map(str, range(outputs)))


def same_classes(run: Trained, source: Source, outputs: int) -> None:
    """Raise `WorldError` if a dataset has other classes than the model, which has so many outputs."""
    then, now = run.class_names, source.class_names
    if then is not None and now is not None and then != now:
        found, expected = f"the classes {listed(now)}", f"{listed(then)}, which the model was trained on"
    elif source.num_classes is not None and source.num_classes != outputs:
        found, expected = f"{source.num_classes} classes", f"{outputs}, which the model was trained on"
    else:
        return
    remedy = "choose a dataset with the same classes in the same order"
    raise WorldError(where=source.full_name, found=found, expected=expected, remedy=remedy)


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return the first of these names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
