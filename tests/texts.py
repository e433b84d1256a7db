"""A table of reviews in JSON lines, and configs that read it."""

import json
from pathlib import Path

import numpy as np

NUM_TEXTS, LONGEST = 200, 40
WORDS = ("good", "bad", "tea", "dog", "food", "was", "not", "Very", "the", "a", "new", "und")


def write_reviews(folder: Path) -> None:
    """Write 200 reviews of 0 to 40 words as `reviews.jsonl`; those with more `good` than `bad` are positive."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(NUM_TEXTS):
        words = rng.choice(WORDS, int(rng.geometric(0.12)) % (LONGEST + 1)).tolist()
        score = "positive" if words.count("good") > words.count("bad") else "other"
        lines.append(json.dumps({"review": " ".join(words), "score": score, "stars": int(rng.integers(1, 6))}))
    (folder / "reviews.jsonl").write_text("\n".join(lines) + "\n")


TOKENS = "{standardize_text: lower}, {tokenize: whitespace}"
IDS = f"{TOKENS}, lookup, {{embed: 4}}"


def words_of(folder: Path, *others: str, steps: str = IDS, more: str = "") -> tuple[str, ...]:
    """Arguments of a run that reads the reviews in `folder`, and trains nothing unless `others` name a model."""
    model = () if any(word.startswith("model=") for word in others) else ("model=emulated", "model.step_ms=0")
    return (
        "experiment=text", f"dataset.files={folder / 'reviews.jsonl'}", f"dataset.dir={folder / 'kept'}",
        "dataset.target={score: class}", f"transform.columns={{review: {{of: review, steps: [{steps}]}}{more}}}",
        "load.boundaries=[4,10,40]", "load.batch_size=16", *model, "trainer.epochs=2", *others,
    )  # fmt: skip
