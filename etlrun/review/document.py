"""A review as JSON, for machines."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from etlrun.config.overrides import typed
from etlrun.review.review import Review, contradictions
from etlrun.review.sides import DEFAULT
from etlrun.stages.base import Kind

FORMAT_VERSION = 1


def as_json(review: Review) -> str:
    """Return the whole review as JSON; `format` is increased by incompatible changes."""
    experiments = [
        {
            "name": reviewed.name,
            "state": reviewed.state,
            "changes": [str(kind) for kind in reviewed.kinds],
            "since": reviewed.comparison.since or None,
            "headline": reviewed.headline,
            "fingerprints": [None if plan is None else plan.fingerprint for plan in (reviewed.old, reviewed.new)],
            "differences": [dataclasses.asdict(item) for item in reviewed.comparison.differences],
            "notes": list(reviewed.comparison.notes),
            "caches": [dataclasses.asdict(kept) for kept in reviewed.caches],
            "ran": None if reviewed.ran is None else dataclasses.asdict(reviewed.ran),
            "facts": None if reviewed.facts is None else dataclasses.asdict(reviewed.facts),
            "faults": [dataclasses.asdict(fault) for fault in reviewed.faults],
            "images": None if reviewed.images is None else dataclasses.asdict(reviewed.images),
        }
        for reviewed in review.experiments
    ]
    files = [dataclasses.asdict(file) for file in review.files]
    document = {"format": FORMAT_VERSION, "old": review.old, "new": review.new}
    policy = None if review.policy is None else dataclasses.asdict(review.policy)
    whole = {
        **document,
        **_of_all(review),
        "experiments": experiments,
        "files": files,
        "policy": policy,
    }
    return json.dumps(whole, indent=2) + "\n"


def _of_all(review: Review) -> dict[str, Any]:
    """Return what a workflow decides by: kinds of change, whether anything changes or failed, and what is to be run."""
    policy, kinds = review.policy, {kind for reviewed in review.experiments for kind in reviewed.kinds}
    return {
        "kinds": [str(kind) for kind in Kind if kind in kinds],
        "changed": review.changes,
        "failed": bool(review.is_faulty or contradictions(review) or (policy and policy.is_failed)),
        "matrix": matrix(review),
    }


def matrix(review: Review) -> dict[str, list[dict[str, Any]]]:
    """Return the experiments that change or are new, and can be run, as the matrix of a job of GitHub Actions.

    The `overrides` of each are one argument.
    """
    return {
        "include": [
            {
                "experiment": reviewed.name,
                "overrides": "" if reviewed.name == DEFAULT else shlex.split(typed("experiment", reviewed.name))[0],
                "state": reviewed.state,
                "kinds": [str(kind) for kind in reviewed.kinds],
                "since": reviewed.comparison.since or None,
            }
            for reviewed in review.experiments
            if reviewed.changes and reviewed.state in {"compared", "added"} and reviewed.is_experiment
        ]
    }
