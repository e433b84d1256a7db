"""A review as JSON, for machines."""

from __future__ import annotations

import dataclasses
import json

from etlrun.review.review import Review

FORMAT_VERSION = 1


def as_json(review: Review) -> str:
    """Return the whole review as JSON; `format` is increased by incompatible changes."""
    experiments = [
        {
            "name": reviewed.name,
            "state": reviewed.state,
            "changes": [str(kind) for kind in reviewed.comparison.kinds],
            "since": reviewed.comparison.since or None,
            "headline": reviewed.headline,
            "fingerprints": [None if plan is None else plan.fingerprint for plan in (reviewed.old, reviewed.new)],
            "differences": [dataclasses.asdict(item) for item in reviewed.comparison.differences],
            "notes": list(reviewed.comparison.notes),
            "caches": [dataclasses.asdict(kept) for kept in reviewed.caches],
            "cost": None if reviewed.cost is None else dataclasses.asdict(reviewed.cost),
            "measured": [dataclasses.asdict(measured) for measured in reviewed.measured],
            "facts": None if reviewed.facts is None else dataclasses.asdict(reviewed.facts),
            "faults": [dataclasses.asdict(fault) for fault in reviewed.faults],
            "images": None if reviewed.images is None else dataclasses.asdict(reviewed.images),
        }
        for reviewed in review.experiments
    ]
    files = [dataclasses.asdict(file) for file in review.files]
    document = {"format": FORMAT_VERSION, "old": review.old, "new": review.new}
    policy = None if review.policy is None else dataclasses.asdict(review.policy)
    return json.dumps({**document, "experiments": experiments, "files": files, "policy": policy}, indent=2) + "\n"
