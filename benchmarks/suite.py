"""CPU and wall seconds of the tests, by kind: a plugin of pytest that records them, and the table of what it recorded.

    CPU_SECONDS=FOLDER python -m pytest -p benchmarks.suite
    python -m benchmarks.suite BEFORE FOLDER... [--output benchmarks/results/tests.md]

The CPU seconds of a test are those of its process and of the children that it has waited for: jobs of sweeps, and
others that are forked from a server, are in no row. The kind of a test is that of its marker, which is looked up in the
later folders where an earlier one has none, or of what its module imports.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent / "tests"
KINDS = {
    "docs": r"^test_docs$",
    "other backends, clusters and loggers": r"^test_(backends|devices|hosts\w*|slurm|plugins|services|service\w*)$",
    "marked slow: kills, resumes to the bit, programs, exports": None,
    "runs and sweeps": r"\b(run_here|trained_here|trained_run|sweep|forked|start)\b",
    "pipelines": r"\b(training_pipeline|Pipeline|batches)\b",
    "plans, configs, files and pages": r"",
}
"""For each kind of test a pattern in its module's name, if it begins with ^, or in the module; None is the marker."""
Row = tuple[str, float, float, bool]
_rows: list[Row] = []


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the name, CPU seconds and wall seconds of a test, and whether it is marked slow."""
    cpu_s, wall_s = _cpu_s(), time.perf_counter()
    result = yield
    is_slow = item.get_closest_marker("slow") is not None
    _rows.append((item.nodeid, _cpu_s() - cpu_s, time.perf_counter() - wall_s, is_slow))
    return result


def pytest_sessionfinish() -> None:
    """Write the rows of this process, a worker or the only one."""
    folder = Path(os.environ["CPU_SECONDS"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(json.dumps(_rows))


def rows_of(folder: Path) -> list[Row]:
    """Return the rows of all processes."""
    rows = [row for path in folder.glob("*.json") for row in json.loads(path.read_text())]
    return [(name, cpu_s, wall_s, bool(*is_slow)) for name, cpu_s, wall_s, *is_slow in rows]


def kind_of(name: str, *, is_slow: bool) -> str:
    """Return the kind of a test."""
    module = Path(name.partition("::")[0])
    path = TESTS / module.name
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for kind, pattern in KINDS.items():
        if pattern is None:
            if is_slow:
                return kind
        elif re.search(pattern, module.stem if pattern.startswith("^") else text):
            return kind
    raise AssertionError(name)


def _cpu(row: Row) -> float:
    return row[1]


def _wall(row: Row) -> float:
    return row[2]


def text_of(before: list[Row], after: list[Row]) -> str:
    """Return two sentences, and the table under them."""
    plain_s = sum(_cpu(row) for row in after if not row[-1])
    return (
        "Seconds of the tests by kind, at two commits; those of jobs of sweeps, which are\n"
        f"forked from a server, are in no row. All tests took {sum(map(_cpu, before)):.0f} CPU seconds, and plain\n"
        f"`pytest`, which leaves out what is marked `slow`, takes {plain_s:.0f}, without the start of its workers.\n\n"
        + table(before, after)
    )


def table(before: list[Row], after: list[Row]) -> str:
    """Return the lines of the table: tests, CPU seconds and wall seconds of each kind, before and after."""
    slow = {name for name, _, _, is_slow in after if is_slow}
    head = "| kind | tests | CPU s before | CPU s after | wall s before | wall s after |\n|---|---|---|---|---|---|\n"
    lines = []
    for kind in (*KINDS, "all"):
        of_kind = [
            [row for row in rows if kind in ("all", kind_of(row[0], is_slow=row[0] in slow))]
            for rows in (before, after)
        ]
        counts = " and ".join(str(len(rows)) for rows in of_kind)
        cells = [f"{sum(seconds(row) for row in rows):.0f}" for seconds in (_cpu, _wall) for rows in of_kind]
        lines.append(f"| {kind} | {counts} | {' | '.join(cells)} |\n")
    return head + "".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="+")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    text = text_of(rows_of(arguments.before), [row for folder in arguments.after for row in rows_of(folder)])
    print(text, end="")
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
