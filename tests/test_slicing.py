"""Splits in TFDS's slicing language: a plan refuses what TFDS, or a source of files, would not read."""

import pytest
import tensorflow_datasets as tfds

from etlrun.sources.on_disk import OnDisk
from etlrun.sources.slices import slices
from etlrun.stages.splits import FILES, TFDS, malformed
from tests.configs import refusal_of_request

EXPECTED = "expected splits such as train, train[:80%] or train[100:200], joined by +"
WHOLE = "write whole numbers of examples or percents, such as train[:80%]"
NAME = "write NAME or NAME[FROM:TO], such as train[:80%]"
VALID = (
    "train", "train[:80%]", "train[80%:]", "train[10:20]", "train[-5:]", "train[:-5%]", "a+b", "a[:1] + b[10%:20%]",
    "train[0:0]",
)  # fmt: skip
OF_TFDS = (
    "train[:12.5%]",
    "train[3shard]",
    "train[-1shard:]",
    "train[:1_000]",
    "my-split[:10]",
    "all",
    "train[10:50%]",
)
MALFORMED = {
    "train[10": ("a '[' that is not closed at character 6", "close it, as in train[:10]"),
    "train[:50%": ("a '[' that is not closed at character 6", "close it, as in train[:50%]"),
    "train[a:b]": ("'a' as an end of a slice at character 7", WHOLE),
    "train[10: 20]": ("' 20' as an end of a slice at character 10", WHOLE),
    "train[:150%]": ("'150%', more than 100%, at character 8", WHOLE),
    "train[1.5:]": ("'1.5' as an end of a slice at character 7", WHOLE),
    "train[:10]+": ("no split at character 12", "name a split, or remove the +"),
    "+ train": ("no split at character 1", "name a split, or remove the +"),
    "train[10]": ("a slice without ':' at character 7", "write train[:10] for what is before it, or train[10:]"),
    "a + b[50%]": ("a slice without ':' at character 7", "write b[:50%] for what is before it, or b[50%:]"),
    "train[1:9:2]": ("a third value at character 7", "write train[1:9]: slices have no step"),
    "train[]": ("a slice without ends at character 6", "write train for all of it"),
    "train[:10]x": ("'x' behind the slice at character 11", "remove it, or join splits by +"),
    "train:50%]": ("':' in the name of a split at character 6", NAME),
    "my split": ("' ' in the name of a split at character 3", NAME),
    "[:10]": ("'[' in the name of a split at character 1", NAME),
}


@pytest.mark.parametrize(("split", "told"), MALFORMED.items())
def test_a_malformed_split_is_refused_with_its_place(split: str, told: tuple[str, str]) -> None:
    assert [*malformed(split, FILES)] == [(f"{split!r} with {told[0]}", told[1])]
    assert [*malformed(split, TFDS)]


def test_the_plan_refuses_each_split_by_its_key() -> None:
    assert refusal_of_request('dataset.split="train[10"', 'dataset.eval_split="train[:5%]+x["').splitlines() == [
        f"dataset.split: found 'train[10' with a '[' that is not closed at character 6; {EXPECTED}",
        "    -> close it, as in train[:10]",
        f"dataset.eval_split: found 'train[:5%]+x[' with a '[' that is not closed at character 13; {EXPECTED}",
        "    -> close it, as in x[:80%]",
    ]


@pytest.mark.parametrize("split", [*VALID, *OF_TFDS, *MALFORMED, "train[:]", "train[.5:]", "train[.5%:]"])
def test_tfds_agrees(split: str) -> None:
    try:
        tfds.core.ReadInstruction.from_spec(split)
        reads = True
    except (ValueError, TypeError):
        reads = False
    assert reads is not any(malformed(split, TFDS))


@pytest.mark.parametrize("split", [*VALID, *OF_TFDS[:4], *MALFORMED, "train[:]"])
def test_sources_of_files_agree(split: str) -> None:
    reads = bool(slices(split, dict.fromkeys(("train", "a", "b"), 100)))
    assert reads is not any(malformed(split, FILES)) or split == "train[:150%]"


@pytest.mark.parametrize(
    ("split", "count", "parts", "thinned"),
    [
        ("train", 100, 2, "train"),
        ("train", 30, 2, "train[0:15]+train[50:65]"),
        ("train[50%:]", 10, 3, "train[50:53]+train[66:69]+train[83:87]"),
        ("train[:50%]+train[100%:]", 5, 2, "train[0:2]+train[25:28]"),
        ("train", 2, 3, "train[0:1]+train[33:34]+train[66:67]"),
        ("all", 5, 2, "all"),
    ],
)
def test_a_sample_is_spread_over_a_split(split: str, count: int, parts: int, thinned: str) -> None:
    assert OnDisk(full_name="some", sizes={"train": (100, 1)}).thinned(split, count, parts) == thinned
