"""What it costs to measure the input wait: Keras's own loop against the measured one, in turns.

    python benchmarks/wait_cost.py [--turns 40] [--output benchmarks/results/wait_cost.md]

Both loops are `Model.fit` on the sample dataset's training pipeline, cached in memory. A step is that of a very small
model, followed by a sleep, so that it takes 10 ms. The first loop is Keras as it is; the second one reads through
`Watched`, steps as etlrun's trainings do, counts in a callback, and has the sampler beside it. The time of a turn is
from the end of its first step to that of its last one, a step; chance decides which loop goes first.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.measure.watched import Watch, Watched, sampled
from etlrun.run import fit
from etlrun.sources.base import open_source
from etlrun.stages import STAGES

STEP_S = 0.010
OVERRIDES = ["load.batch_size=8", "load.shuffle_buffer=64", "load.drop_remainder=true", "cache=memory"]


class _Ends(keras.callbacks.Callback):  # type: ignore[misc]
    """When each step ended; Keras hands over its numbers, so it is done."""

    def __init__(self, watch: Watch | None) -> None:
        super().__init__()
        self.watch, self.ends_s = watch, list[float]()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.watch is not None:
            self.watch.meter.stepped()
        self.ends_s.append(time.perf_counter())


def _lasting(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, and then a sleep until the step has taken its time."""

    def lasting(*arguments: Any) -> Any:
        result = function(*arguments)
        time.sleep(STEP_S)
        return result

    return lasting


def _model() -> keras.Model:
    inputs = keras.Input((64, 64, 3))
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(inputs[:, 0, 0, :]))
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return model


class Loops:
    """Both loops, compiled and warm."""

    def __init__(self) -> None:
        plan = resolve(Request(overrides=OVERRIDES), STAGES).plan
        source = open_source(plan.spec.dataset)
        split = source.split(plan.spec.dataset.split, "dataset.split")
        self.pipeline = Pipeline(plan.train, Context(split=split, seed=0))
        self.plain, self.measured = _model(), _model()
        self.plain.make_train_function()
        fit.read_from_python(self.measured, plan.spec.model, self.pipeline.dataset.element_spec, None)
        self.measured.make_train_function()
        for model in (self.plain, self.measured):
            model.train_function = _lasting(model.train_function)
        for loop in (self.plain_ms, self.measured_ms):
            loop()

    def plain_ms(self) -> float:
        """A step of Keras's own loop."""
        ends = _Ends(None)
        self.plain.fit(self.pipeline.dataset, callbacks=[ends], verbose=0)
        return self._mean_ms(ends)

    def measured_ms(self) -> float:
        """A step of the loop that is measured."""
        watch = Watch()
        ends = _Ends(watch)
        watch.meter.begin()
        with sampled([watch]):
            self.measured.fit(Watched(self.pipeline.dataset, watch), callbacks=[ends], verbose=0)
        return self._mean_ms(ends)

    def _mean_ms(self, ends: _Ends) -> float:
        return 1000 * (ends.ends_s[-1] - ends.ends_s[0]) / (len(ends.ends_s) - 1)


def compare(turns: int) -> str:
    """The table of `turns` turns, as Markdown."""
    fit, pairs = Loops(), []
    for _turn in range(turns):
        order = random.sample((fit.plain_ms, fit.measured_ms), 2)
        times = {loop.__name__: loop() for loop in order}
        pairs.append((times["plain_ms"], times["measured_ms"]))
    plain, measured = (statistics.median(column) for column in zip(*pairs, strict=True))
    low, middle, high = statistics.quantiles([after / before for before, after in pairs], n=4)
    return (
        "| backend | Keras's loop ms | measured loop ms | ratio, median | quartiles |\n|---|---|---|---|---|\n"
        f"| {keras.backend.backend()} | {plain:.3f} | {measured:.3f} | {middle:.4f} | {low:.4f} to {high:.4f} |\n"
    )


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    table = compare(arguments.turns)
    print(table)
    if arguments.output:
        command = f"python benchmarks/wait_cost.py --turns {arguments.turns}"
        head = f"`{command}` on 2 cores, TensorFlow {tf.__version__}, Keras {keras.__version__}"
        before = arguments.output.read_text() if arguments.output.exists() else ""
        arguments.output.write_text(f"{before}{head}\n\n{table}\n")


if __name__ == "__main__":
    main()
