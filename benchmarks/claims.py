"""Is `etlrun diff` right about what changes the data? It classes random pairs of configs, whose pipelines then run.

    python -m benchmarks.claims --pairs 300 --trainings 60 --output benchmarks/results/claims.md [OVERRIDE...]

Each pair is two configs that differ in one to three values. Both pipelines are read for two passes, training and
validation, and the examples of each pass are hashed without regard to their order; caches on disk are opened by their
keys. A claim is contradicted where digests differ and `diff` said neither that the data change, nor, in a note, why
examples may differ though no value changes the data; and where the key of a cache that "stays valid" differs. What a
sweep says of the data of its configs rests on the same claims.

A policy is held against the same digests: where they differ, `--fail-on data` has to fail, and where the same examples
come in another order, `--fail-on order`, unless the order of a side is not fixed. What changes nothing passes.

Runs of a small network then train for two epochs: each value by itself, and random pairs. A claim is contradicted where
losses differ though `diff` said nothing, or only the speed, and where the number of steps does though it said only the
order.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks import policies
from benchmarks.policies import Answers, answer, reviewed
from benchmarks.random_configs import random_pairs
from benchmarks.trainings import trained_claims
from etlrun.config.request import Request, composed
from etlrun.graph.build import Pipeline
from etlrun.graph.disk import keepers_of
from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.review.difference import Comparison
from etlrun.review.effects import REBUILT, VALID, caches
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES
from etlrun.stages.base import DATA, ORDER, SPEED, Kind

PASSES = 2
NOTHING, SPEED_ONLY, OTHER_ORDER, UNSURE, OTHER_DATA = SAID = (
    "changes nothing", "changes only the speed", "changes the order", "changes perhaps the data", "changes the data"
)  # fmt: skip
CACHES = (VALID, REBUILT)
Counts = Counter[tuple[str, bool]]


def said(found: Comparison) -> str:
    """The strongest of what a comparison says; another seed is an order here, since nothing is trained."""
    if DATA in found.kinds:
        return UNSURE if found.is_unsure else OTHER_DATA
    return {(): NOTHING, (SPEED,): SPEED_ONLY}.get(found.kinds, OTHER_ORDER)


@dataclass(frozen=True)
class Reading:
    """What a config reads.

    Attributes:
        examples: Digest of each pass, over training and over validation, whatever the order.
        order: Digest of the examples of each pass in their order.
        keys: Key of each cache on disk, by pipeline.
    """

    examples: list[str]
    order: list[str]
    keys: dict[str, str]


class Reader:
    """Reads pipelines of configs, each once."""

    def __init__(self) -> None:
        self._read_of: dict[str, Reading] = {}

    def read(self, config: dict[str, Any]) -> Reading:
        """What two passes read."""
        name = yaml.safe_dump(config)
        if name not in self._read_of:
            self._read_of[name] = self._read(plan(parse(config, STAGES)))
        return self._read_of[name]

    def _read(self, planned: Plan) -> Reading:
        source = open_source(planned.spec.dataset)
        contexts = contexts_of(planned, source)
        keepers = keepers_of(planned, contexts, {"folder": "-", "overrides": []}, lambda _text: None)
        found, orders = [], []
        for name, context in contexts.items():
            keeper = keepers.get(name)
            if keeper is not None:
                keeper.prepare()
            pipeline, digest = Pipeline(planned.pipelines[name], context, keeper), Digest()
            for _ in range(PASSES):
                streams = hashlib.blake2b(), hashlib.blake2b()  # batches make no difference
                for batch in pipeline.dataset:
                    arrays = [tensor.numpy() for tensor in batch]
                    digest.add(*arrays)
                    for stream, array in zip(streams, arrays, strict=True):
                        stream.update(array.tobytes())
                found.append(f"{name} {digest.taken()}")
                orders.append(" ".join(stream.hexdigest() for stream in streams))
            if keeper is not None:
                keeper.close()
        return Reading(found, orders, {name: keeper.key for name, keeper in keepers.items()})


def claims(base: dict[str, Any], seed: int, pairs: int) -> tuple[Counts, Answers, list[str]]:
    """How often what was said, and whether digests, or keys of caches, were equal; and the pairs that contradict it."""
    counts, answers, wrong, reader = Counts(), Answers(), [], Reader()
    for old, new in random_pairs(base, seed, pairs):
        plans = plan(parse(old, STAGES)), plan(parse(new, STAGES))
        found, failing = reviewed(old, new)
        was, now = reader.read(old), reader.read(new)
        equal, paths = was.examples == now.examples, [item.path for item in found.differences]
        counts[said(found), equal] += 1
        told = said(found) in {UNSURE, OTHER_DATA} or found.doubts
        if not equal and not told:
            wrong.append(f"{found.headline}, yet digests differ: {paths}")
        for kind, fits in _held(plans, was, now) if found.kinds else ():  # else it is one plan
            answers[str(kind), answer(kind in failing), fits] += 1
            if not fits and kind not in failing:
                wrong.append(f"--fail-on {kind} passes, yet digests differ: {paths}")
        for kept in caches(*plans):
            if kept.state in CACHES:
                equal = was.keys[kept.pipeline] == now.keys[kept.pipeline]
                counts[f"cache {kept.state}", equal] += 1
                if kept.state == VALID and not equal:
                    wrong.append(f"{kept}, yet keys differ: {paths}")
    return counts, answers, wrong


def _held(plans: tuple[Plan, Plan], was: Reading, now: Reading) -> Iterator[tuple[Kind, bool]]:
    """Yield the kinds of `--fail-on` that digests can tell of, and whether they are equal."""
    yield DATA, was.examples == now.examples
    if was.examples == now.examples and all(planned.spec.has_order for planned in plans):
        yield ORDER, was.order == now.order


def table(counts: Counts, answers: Answers, wrong: Sequence[str]) -> str:
    """As Markdown."""
    parts = []
    for texts, of in ((SAID, "digests"), ([f"cache {state}" for state in CACHES], "keys")):
        lines = [f"| `diff` said | times | {of} equal | {of} differ |", "|---|---|---|---|"]
        for text in texts:
            equal, differ = counts[text, True], counts[text, False]
            lines.append(f"| {text} | {equal + differ} | {equal} | {differ} |")
        parts.append("\n".join(lines))
    parts.append(policies.table(answers, [DATA, ORDER], "digests"))
    return "\n\n".join([*parts, f"Contradicted: {len(wrong)}.", *wrong]) + "\n"


def main() -> None:
    """Count, print, and write the table where asked; status 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=240)
    parser.add_argument("--trainings", type=int, default=0, help="random pairs that are trained; 0 for no training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        words = ["trainer=drain", f"trainer.epochs={PASSES}", f"cache.dir={scratch}", "transform.resize.size=[32,32]"]
        base = composed(Request(overrides=[*words, *known.overrides]))
        counts, answers, wrong = claims(base, known.seed, known.pairs)
        text = table(counts, answers, wrong)
        if known.trainings:
            fit = composed(Request(overrides=["trainer.epochs=2", *words[2:], *known.overrides]))
            trained, contradicted = trained_claims(fit, known.seed, known.trainings)
            wrong += contradicted
            text += "\n" + "\n".join([trained, "", f"Contradicted: {len(contradicted)}.", *contradicted]) + "\n"
    print(text)
    if known.output:
        command = (
            f"python -m benchmarks.claims --pairs {known.pairs} --trainings {known.trainings} --seed {known.seed} "
            f"{' '.join(known.overrides)}"
        )
        command = re.sub(r"data_dir=\S+", "data_dir=DIR", command.rstrip())
        known.output.write_text(f"`{command}`\n\n{text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
