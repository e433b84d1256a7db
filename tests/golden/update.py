"""Rewrites the golden plans and the golden program: `python tests/golden/update.py`."""

from pathlib import Path

from etlrun import compose, grid, render
from etlrun.eject.program import ejected
from etlrun.stages import STAGES

PLANS = Path(__file__).resolve().parent / "plans"
PROGRAM = PLANS.with_name("parallel.py")
_PACKAGES = {"tensorflow": "2.21.0", "keras": "3.15.1", "tensorflow-datasets": "4.9.10"}


def golden_texts() -> dict[str, str]:
    """The plan of every experiment, and of none, as it is now; by the name of its file."""
    names = sorted(path.stem for path in (compose.config_dir() / "experiment").glob("*.yaml"))
    overrides = {"default": [], **{name: [f"experiment={name}"] for name in names}}
    return {
        f"{name}.txt": render.text(grid.planned(compose.Request(overrides=words), STAGES))
        for name, words in overrides.items()
    }


def golden_program() -> str:
    """The program that `experiment=parallel` is now."""
    words = ["experiment=parallel"]
    return ejected(grid.planned(compose.Request(overrides=words), STAGES), words, _PACKAGES)


def main() -> None:
    """Write them all, and remove those of experiments that are gone."""
    texts = golden_texts()
    for path in PLANS.glob("*.txt"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (PLANS / name).write_text(text, encoding="utf-8")
    PROGRAM.write_text(golden_program(), encoding="utf-8")


if __name__ == "__main__":
    main()
