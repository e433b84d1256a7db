"""Rewrites the golden plans: `python tests/golden/update.py`."""

from pathlib import Path

from etlrun import compose, grid, render
from etlrun.stages import STAGES

PLANS = Path(__file__).resolve().parent / "plans"


def golden_texts() -> dict[str, str]:
    """The plan of every experiment, and of none, as it is now; by the name of its file."""
    names = sorted(path.stem for path in (compose.config_dir() / "experiment").glob("*.yaml"))
    overrides = {"default": [], **{name: [f"experiment={name}"] for name in names}}
    return {
        f"{name}.txt": render.text(grid.planned(compose.Request(overrides=words), STAGES))
        for name, words in overrides.items()
    }


def main() -> None:
    """Write them all, and remove those of experiments that are gone."""
    texts = golden_texts()
    for path in PLANS.glob("*.txt"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (PLANS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
