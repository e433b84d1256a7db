"""Is `etlrun diff` right about what changes the data? It classes random pairs of configs, whose pipelines then run.

    python -m benchmarks.claims --pairs 240 --output benchmarks/results/claims.md [OVERRIDE...]

Each pair is two configs that differ in one to three values. Both pipelines are read for two passes, training and
validation, and the examples of each pass are hashed without regard to their order. A claim is contradicted where
digests differ and `diff` said neither that the data change, nor, of one order, another one or another seed, in a note
that examples may differ from pass to pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.random_configs import random_pairs
from etlrun.caching import keepers_of
from etlrun.compose import Request, composed
from etlrun.graph.build import Pipeline
from etlrun.graph.source import Source
from etlrun.measure.digest import Digest
from etlrun.pipelines import contexts_of
from etlrun.plan import Plan
from etlrun.planning import plan
from etlrun.review.difference import Comparison, compare
from etlrun.spec import parse
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, SPEED

PASSES = 2
NOTHING, SPEED_ONLY, OTHER_ORDER, UNSURE, OTHER_DATA = SAID = (
    "changes nothing", "changes only the speed", "changes the order", "changes perhaps the data", "changes the data"
)  # fmt: skip
Counts = Counter[tuple[str, bool]]


def said(found: Comparison) -> str:
    """The strongest of what a comparison says; another seed is an order here, since nothing is trained."""
    if DATA in found.kinds:
        return UNSURE if found.is_unsure else OTHER_DATA
    return {(): NOTHING, (SPEED,): SPEED_ONLY}.get(found.kinds, OTHER_ORDER)


class Reader:
    """Reads pipelines of configs, each once."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._digests: dict[str, tuple[str, ...]] = {}

    def digests(self, config: dict[str, Any]) -> tuple[str, ...]:
        """Of each pass, over training and over validation."""
        key = yaml.safe_dump(config)
        if key not in self._digests:
            self._digests[key] = tuple(self._read(plan(parse(config, STAGES))))
        return self._digests[key]

    def _read(self, planned: Plan) -> list[str]:
        source = Source(planned.spec.dataset)
        contexts = contexts_of(planned, source)
        keepers = keepers_of(planned, contexts, {"folder": "-", "overrides": []}, lambda _text: None)
        found = []
        for name, context in contexts.items():
            keeper = keepers.get(name)
            if keeper is not None:
                keeper.prepare()
            pipeline, digest = Pipeline(planned.pipelines[name], context, keeper), Digest()
            for _ in range(PASSES):
                for images, labels in pipeline.dataset:
                    digest.add(images.numpy(), labels.numpy())
                found.append(f"{name} {digest.taken()}")
            if keeper is not None:
                keeper.close()
        return found


def claims(base: dict[str, Any], seed: int, pairs: int) -> tuple[Counts, list[str]]:
    """How often what was said, and whether digests were equal; and the pairs that contradict it."""
    counts, wrong, reader = Counts(), [], Reader()
    for old, new in random_pairs(base, seed, pairs):
        found = compare(plan(parse(old, STAGES)), plan(parse(new, STAGES)), (old, new))
        equal = reader.digests(old) == reader.digests(new)
        counts[said(found), equal] += 1
        told = said(found) in {UNSURE, OTHER_DATA} or (found.notes and said(found) != SPEED_ONLY)
        if not equal and not told:
            wrong.append(f"{found.headline}, yet digests differ: {[item.path for item in found.differences]}")
    return counts, wrong


def table(counts: Counts, wrong: Sequence[str]) -> str:
    """As Markdown."""
    lines = ["| `diff` said | pairs | digests equal | digests differ |", "|---|---|---|---|"]
    for text in SAID:
        equal, differ = counts[text, True], counts[text, False]
        lines.append(f"| {text} | {equal + differ} | {equal} | {differ} |")
    lines.append(f"| all | {counts.total()} | | |")
    return "\n".join([*lines, "", f"Contradicted: {len(wrong)}.", *wrong]) + "\n"


def main() -> None:
    """Count, print, and write the table where asked; status 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as caches:
        words = ["trainer=drain", f"trainer.epochs={PASSES}", f"cache.dir={caches}", "transform.resize.size=[32,32]"]
        base = composed(Request(overrides=[*words, *known.overrides]))
        counts, wrong = claims(base, known.seed, known.pairs)
    text = table(counts, wrong)
    print(text)
    if known.output:
        command = f"python -m benchmarks.claims --pairs {known.pairs} --seed {known.seed} {' '.join(known.overrides)}"
        known.output.write_text(f"`{command.rstrip()}`\n\n{text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
