"""What each step is in a program: the source of its function, and the line that calls it."""

from __future__ import annotations

import inspect
from textwrap import dedent

from etlrun.eject.text import call, literal, quoted
from etlrun.stages.dataset import Dataset
from etlrun.stages.step import Parse, Step

Lines = tuple[str, ...]


def lines_of(step: Step, dataset: Dataset) -> Lines:
    """Lines that make `image`, and where it parses `label`, of what they were."""
    if isinstance(step, Parse):
        return _parsed(dataset)
    values = {name: literal(value) for name, value in step.values.items()}
    seed = {"seed": "seed"} if step.random else {}
    return (call(f"image = {_name(step)}", "image", *(f"{name}={text}" for name, text in (values | seed).items())),)


def source_of(step: Step) -> str:
    """The function of a step, under the name of the step."""
    text = dedent(inspect.getsource(step.op)).rstrip()
    return text.removeprefix("@staticmethod\n").replace("def op(", f"def {_name(step)}(", 1)


def _name(step: Step) -> str:
    return step.path.rpartition(".")[2]


def _parsed(dataset: Dataset) -> Lines:
    image, label = quoted(dataset.image_key), quoted(dataset.label_key)
    return (
        "features = tf.io.parse_single_example(",
        "    record,",
        "    {",
        f"        {image}: tf.io.FixedLenFeature((), tf.string),",
        f"        {label}: tf.io.FixedLenFeature((), tf.int64),",
        "    },",
        ")",
        *unpacked(dataset),
    )


def unpacked(dataset: Dataset) -> Lines:
    """Out of a dict of features."""
    return f"image = features[{quoted(dataset.image_key)}]", f"label = features[{quoted(dataset.label_key)}]"
