import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pastes import ETLRUN, LEFT_OUT, Paste, pastes
from tests.readers import ran

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
