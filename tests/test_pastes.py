import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pastes import ETLRUN, LEFT_OUT, ROOT, Paste, lacking, pastes
from tests.readers import ran

REAL = """\
config  prefetch   cache  status     runs  examples/s  gain                 call      bound by
    1*         1  memory  completed     3       130.0  1.30 (1.10 to 1.40)  better    transform.decode
    0          0    none  completed     3       100.0  1.00                 baseline  model
verdict   bound by its model
used      1,272.6 MB of memory at most, 2.0 CPU seconds
folder    outputs/2026-11-21/18-06-40-922402
"""


@pytest.mark.parametrize(
    ("pasted", "lines"),
    [
        (REAL, []),
        (REAL.replace("1,272.6 MB", "3 GB").replace("21/18", "22/19").replace("1.10 to", "0.9 to"), []),
        ("   0   0  none  completed", [1]),
        ("folder    outputs/1\n", []),
        ("…\n", []),
        (REAL.replace("better ", "tied  ").replace("transform.decode", "load.shuffle"), []),
        (REAL.replace("baseline", "first   "), [3]),
        (REAL.replace("  memory  ", "    disk  "), [2]),
        (REAL.replace("1*", "1 "), [2]),
        (REAL.replace("CPU seconds", "seconds"), [5]),
        (REAL.replace("  bound by\n", "  bound\n"), [1]),
        ("folder    outputs/1\nverdict   bound by its model\n", [2]),
        ("1,272.6 MB of memory at most, 2.0 CPU seconds\n", [1]),
    ],
)
def test_a_pasted_line_is_wrong_where_the_output_has_none_with_its_words(pasted: str, lines: list[int]) -> None:
    paste = Paste(ROOT / "README.md", ETLRUN, tuple(enumerate(pasted.splitlines(), 1)))
    wrong = lacking(paste, REAL)
    assert [line.partition(": ")[0] for line in wrong] == [f"README.md:{number}" for number in lines]
    assert all(pasted.splitlines()[number - 1] in line for number, line in zip(lines, wrong, strict=True))


PLANS = [paste for paste in pastes() if paste.command.startswith(f"{ETLRUN} plan ") and " plan -m" not in paste.command]


@pytest.mark.parametrize("paste", PLANS, ids=str)
def test_a_pasted_plan_says_where_it_leaves_lines_out(paste: Paste, tmp_path: Path) -> None:
    def shaped(text: str) -> str:
        return re.sub(r"[\d,.]+", "#", " ".join(text.split()))

    _, text = ran(shlex.split(paste.command.removeprefix(ETLRUN)), tmp_path)
    real, place = [shaped(line) for line in text.splitlines() if line.strip()], 0
    for (_, before), (number, line) in pairwise([line for line in paste.lines if line[1].strip()]):
        if LEFT_OUT not in (before.strip(), line.strip()) and shaped(line) in real:
            place = real.index(shaped(before), place)
            assert real[place + 1] == shaped(line), f"{paste.page.name}:{number}"
