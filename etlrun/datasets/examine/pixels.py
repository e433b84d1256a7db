"""Means and deviations of the pixels of a training split."""

import numpy as np
import numpy.typing as npt

from etlrun.datasets.examine.show import explained
from etlrun.graph.context import Context
from etlrun.graph.datasets import applied, staged
from etlrun.planning.plan import Plan
from etlrun.sources.base import open_source
from etlrun.stages.dataset import IMAGE
from etlrun.stages.extract import SkipCorrupt
from etlrun.stages.image import Decode, Resize
from etlrun.stages.step import Parse
from etlrun.system.errors import ConfigError, Fault

Floats = npt.NDArray[np.float64]


def measured(plan: Plan) -> tuple[Floats, Floats, int]:
    """Return the means and the standard deviations of the channels, of pixels in [0, 1], and the number of examples.

    The pixels are those of the training split after `resize`, or after `decode` if the steps have no other, without the
    random steps before it. Sums of an image are exact for uint8, and of float64 for float32; those of all images are of
    float64.

    Raises:
        ConfigError: The steps decode no image.
        WorldError: Data is missing or corrupt.
    """
    steps = plan.spec.transform.steps
    places = [place for place, step in enumerate(steps, 1) if isinstance(step, Decode | Resize)]
    if not places:
        found, remedy = "no step `decode`", "choose a transform of images"
        raise ConfigError([Fault("transform.steps", found, "images to measure", remedy)])
    dataset_of = plan.spec.dataset.without_download()
    source = open_source(dataset_of)
    split = source.split(dataset_of.split, dataset_of.key_of("train"))
    context = Context(source=source, split=split, seed=plan.spec.trainer.seed)
    dataset = staged(None, plan.spec.extract.for_evaluation(), context)
    before = [] if plan.spec.extract.parses else [Parse()]
    flow = plan.spec.extract.flow(dataset_of.examples)
    for step in (*before, *(step for step in steps[: max(places)] if not step.random)):
        dataset, flow = dataset.map(applied(step, context), num_parallel_calls=-1), step.flow(flow)
    if dataset_of.on_corrupt == "skip":
        dataset = staged(dataset, SkipCorrupt(), context)
    with explained(context, steps[max(places) - 1].path):
        sums, squares, pixels, count = np.zeros(3), np.zeros(3), 0, 0
        for example in dataset.prefetch(8).as_numpy_iterator():
            flat = example[IMAGE].reshape(-1, 3)
            flat = flat.astype(np.int64 if flat.dtype == np.uint8 else np.float64)
            sums, squares = sums + flat.sum(0), squares + (flat * flat).sum(0)
            pixels, count = pixels + len(flat), count + 1
    mean = sums / pixels
    deviation = np.sqrt(np.maximum(squares / pixels - mean * mean, 0))
    low, high = flow.features[IMAGE].low or 0.0, flow.features[IMAGE].high or 255.0
    return (mean - low) / (high - low), deviation / (high - low), count
