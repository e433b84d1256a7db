"""Does `etlrun size` tell how many threads an accelerator needs?

    python -m benchmarks.size [--runs 5] [--output benchmarks/results/size.md]

A transform that waits 4 ms for each example, so that two cores can stand in for many, is run once with one thread and
without a model. Its costs say how many threads keep accelerators of several step times busy, and how far one, two and
four threads get; runs with these threads and the emulated accelerator are the check.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from benchmarks.planted import BASE, planted
from etlrun.config.request import Request, composed
from etlrun.record.summary import Summary, read_summary
from etlrun.results.sizing import size
from etlrun.run import run
from etlrun.stages.image import Decode
from etlrun.system import machine

SLEEPS_MS = {Decode: 4.0}
THREADS = (1, 2, 4)
STEPS_MS = (8.0, 16.0, 32.0)
HEAD = ("step ms", "threads needed at an AU of 0.9", "threads", "AU predicted", "AU measured", "lowest", "highest")


def ran(folder: Path, **overrides: str) -> Summary:
    """The summary of a run in `folder`; `__` in a name stands for a dot."""
    words = [f"{key}={value}" for key, value in {**BASE, **overrides}.items() if value]
    with planted(SLEEPS_MS), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        run.freeze(folder, composed(Request(overrides=words)), words)
        status = run.run(folder)
    summary = read_summary(folder)
    assert status == 0
    assert summary is not None
    return summary


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    with tempfile.TemporaryDirectory() as home:
        alone = Path(home, "alone")
        drained = {key: "" for key in BASE if key.startswith(("model", "trainer"))} | {"trainer": "drain"}
        summary = ran(alone, **{**drained, "transform.num_parallel_calls": "1"})
        for step_ms in STEPS_MS:
            full = size(alone, summary, step_ms, 1.0).needs[0].threads["transform.map"]
            for threads in THREADS:
                found = []
                for number in range(known.runs):
                    words = {"transform.num_parallel_calls": str(threads), "model.step_ms": f"{step_ms:g}"}
                    of = ran(Path(home, f"{step_ms}-{threads}-{number}"), **words)
                    found.append(of.au or 0.0)
                cells = [f"{step_ms:g}", f"{0.9 * full:.2f}", str(threads), f"{min(1.0, threads / full):.2f}"]
                cells += [f"{value:.2f}" for value in (statistics.median(found), min(found), max(found))]
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    table = "\n".join(lines)
    if known.output:
        how = f"`python -m benchmarks.size --runs {known.runs}` on {machine.cores()} cores"
        known.output.write_text(f"{how}\n\n{table}\n")


if __name__ == "__main__":
    main()
