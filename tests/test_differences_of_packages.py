"""What a diff tells of the packages that add steps, models and metrics: their names and versions."""

from dataclasses import replace

import pytest

from etlrun.review.difference import compare
from tests.configs import plan_of

FIRST = "my-steps 1.0.2, code 1a"
AGAIN = "my-steps 1.0.2, code 2b"
REPORTED = "changes what is reported of epochs, nothing else"


@pytest.mark.parametrize(
    ("name", "new", "changed", "means"),
    [
        (
            "transform.resize",
            "my-steps 1.1.0, code 2b",
            "my-steps 1.0.2 -> my-steps 1.1.0",
            "data, from transform.resize on",
        ),
        (
            "transform.resize",
            AGAIN,
            f"{FIRST} -> {AGAIN}",
            "data, from transform.resize on, other code of the same version",
        ),
        ("the loss quantile", "steps 2, code 1a", "my-steps 1.0.2 -> steps 2", "training, with the same code"),
        ("the metric off", "my-steps 2, code 2b", "my-steps 1.0.2 -> my-steps 2", f"speed, {REPORTED}"),
        ("the metric off", AGAIN, f"{FIRST} -> {AGAIN}", f"speed, other code of the same version, {REPORTED}"),
    ],
)
def test_a_changed_package_is_named_by_its_version(name: str, new: str, changed: str, means: str) -> None:
    found = compare(replace(plan_of(), code={name: FIRST}), replace(plan_of(), code={name: new}))
    assert [(of.path, of.change, of.what) for of in found.differences] == [(f"code of {name}", changed, means)]
