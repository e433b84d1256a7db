"""What becomes of caches where a config changes."""

import re
from pathlib import Path

import pytest

from etlrun.graph.identity import PARTS
from etlrun.review.caches import VALID, caches
from etlrun.run.keepers import keepers_for
from tests.configs import CONF, plan_of
from tests.golden import Case, Golden, cases
from tests.runs import small

KEPT = ["cache=disk", "cache.dir=/caches"]


@pytest.mark.parametrize("case", cases("caches"))
def test_caches_stay_valid_where_nothing_before_them_differs(case: Case, golden: Golden) -> None:
    found = caches(plan_of(*case["old"]), plan_of(*case["new"]))
    golden(case, "\n".join(f"{kept.pipeline}: {kept}".split(" (")[0] for kept in found))


def test_the_docs_list_what_a_key_rests_on() -> None:
    listed = re.findall(r"^    - (.+)[;.]$", (CONF.parent / "docs" / "caches.md").read_text(), re.MULTILINE)
    assert listed == [part.title for part in PARTS]


@pytest.mark.parametrize(
    "change",
    [
        "load.batch_size=8", "transform.resize.size=[32,32]", "cache.at=decoded", "cache.at=source", "trainer.seed=3",
        "extract.cycle_length=2", "extract.block_length=2", "extract.shuffle_files=false", "dataset.split='train[:24]'",
        "dataset.on_corrupt=skip", "extract=sequential", "transform.num_parallel_calls=null",
    ],
)  # fmt: skip
def test_a_cache_that_stays_valid_keeps_its_key(tiny: Path, change: str) -> None:
    shared = (*KEPT, "extract.shuffle_files=true")
    plans = [plan_of(*small(tiny, *shared)), plan_of(*small(tiny, *shared, change))]
    keys = [{name: keeper.key for name, keeper in keepers_for(plan).items()} for plan in plans]
    valid = {kept.pipeline for kept in caches(*plans) if kept.state == VALID}
    same = {name for name in keys[0] if keys[0][name] == keys[1][name]}
    assert valid <= same
    assert ("train" in valid) == ("train" in same)  # the only shard of validation is read in the same order
