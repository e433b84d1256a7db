"""Steps with parameters, and configs that have them."""

import json
from typing import Any

from etlrun.stages import STAGES
from etlrun.stages.base import Stage
from etlrun.stages.step import Step

VALUES: dict[str, dict[str, Any]] = {
    "rescale": {"scale": 0.001, "offset": 0.0},
    "pad": {"by": 2, "mode": "constant", "value": 0.0},
    "random_crop": {"size": (20, 24)},
    "random_resized_crop": {"size": (24, 20), "scale": (0.3, 1.0), "ratio": (0.75, 1.5), "antialias": False},
    "random_rotation": {"fill_mode": "reflect", "degrees": 15.0},
    "random_translation": {"fill_mode": "constant", "height_factor": 0.1, "width_factor": 0.2},
    "random_zoom": {"fill_mode": "nearest", "factor": 0.2},
    "random_brightness": {"max_delta": 0.1},
    "random_contrast": {"lower": 0.5, "upper": 2.0},
    "random_saturation": {"lower": 0.5, "upper": 2.0},
    "random_hue": {"max_delta": 0.15},
    "random_grey": {"probability": 0.5},
    "rand_augment": {"num_layers": 2, "magnitude": 9},
    "cutout": {"value": 0.0, "length": 4},
    "random_erasing": {"value": 0.0, "probability": 0.5, "scale": (0.1, 0.4), "ratio": (0.5, 2.0)},
    "normalize": {"mean": (0.5, 0.4, 0.3), "std": (0.25, 0.2, 0.25)},
}
"""Values of the parameters of each step that no config of the project's default run has."""
OTHERS: dict[str, str] = {
    "rescale.scale": "0.002",
    "rescale.offset": "0.25",
    "pad.by": "3",
    "pad.mode": "reflect",
    "pad.value": "9",
    "random_crop.size": "[20,25]",
    "random_resized_crop.size": "[24,21]",
    "random_resized_crop.scale": "[0.4,1]",
    "random_resized_crop.ratio": "[0.5,1.5]",
    "random_resized_crop.antialias": "true",
    "random_rotation.fill_mode": "nearest",
    "random_rotation.degrees": "16",
    "random_translation.fill_mode": "nearest",
    "random_translation.height_factor": "0.3",
    "random_translation.width_factor": "0.3",
    "random_zoom.fill_mode": "reflect",
    "random_zoom.factor": "0.3",
    "random_brightness.max_delta": "0.2",
    "random_contrast.lower": "0.6",
    "random_contrast.upper": "1.5",
    "random_saturation.lower": "0.6",
    "random_saturation.upper": "1.5",
    "random_hue.max_delta": "0.5",
    "random_grey.probability": "1",
    "rand_augment.num_layers": "1",
    "rand_augment.magnitude": "10",
    "cutout.value": "1",
    "cutout.length": "5",
    "random_erasing.value": "1",
    "random_erasing.probability": "1",
    "random_erasing.scale": "[0.1,0.3]",
    "random_erasing.ratio": "[0.5,1]",
    "normalize.mean": "[0.5,0.4,0]",
    "normalize.std": "[0.25,0.2,1]",
}
"""For each of their parameters another value, as in an override."""
RANDOM = [name for name, step in STAGES["transform"].items() if step.random is not Stage.random]


def step_of(name: str, **values: Any) -> Step:
    """A step with these values and its usual others."""
    step: Any = STAGES["transform"][name]
    return step(**{**VALUES.get(name, {}), **values})  # type: ignore[no-any-return]


def block_of(name: str) -> str:
    """The override that gives a step its usual values."""
    values = json.dumps(VALUES[name]).replace('"', "")
    return f"++transform.{name}={values}"


def words_with(name: str) -> tuple[str, ...]:
    """The overrides of a run with that step: on pixels, or at the end of both lists where it scales them."""
    if name in ("rescale", "normalize"):
        steps = tuple(f"transform.{listed}=[decode,resize,{name}]" for listed in ("steps", "eval_steps"))
        return (*steps, block_of(name))
    return f"transform.steps=[decode,{name},resize,scale_minus_one_one]", "cache=none", block_of(name)
