"""Steps with parameters, and configs that have them."""

import json
from pathlib import Path
from typing import Any

import yaml

from etlrun.stages import STAGES
from etlrun.stages.base import Stage
from etlrun.stages.step import Step

TABLE = yaml.safe_load(Path(__file__).with_name("golden").joinpath("values.yaml").read_text(encoding="utf-8"))
VALUES: dict[str, dict[str, Any]] = {
    step: {name: tuple(of) if isinstance(of, list) else of for name, of in values.items()}
    for step, values in TABLE["steps"].items()
}
"""Values of the parameters of each step that no config of the project's default run has."""
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
