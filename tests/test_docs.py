"""The commands of README.md and docs/ and the pages of tutorials are run; what is pasted is what they print."""

import hashlib
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import yaml

from etlrun.measure.gains import BETTER, UNTOLD
from etlrun.record.folders import SWEEP
from etlrun.report.render import show
from etlrun.results import report
from etlrun.results.decision import decide
from etlrun.results.report import collect
from etlrun.results.results import Results
from etlrun.review.difference import compare_configs
from etlrun.sweep.ledger import Ledger
from tests.conftest import Once
from tests.pastes import ETLRUN, ROOT, commands, lacking, pastes
from tests.quick import quick_probes, shallow
from tests.readers import changed_configs, grey_package, grove_package, ran, write_configs, write_photos
from tests.test_installed import WORDS
from tests.tutorials import PAGES, blocks, faults, lacks_weights

pytestmark = pytest.mark.slow

NEEDS = {
    "mlflow": ["mlflow-skinny"],
    "onnx": ["onnx", "onnxruntime", "tf2onnx"],
    "s3": ["s3fs", "moto"],
    "several_gpus": ["jax"],
    "slurm": ["hydra-submitit-launcher"],
}
"""Packages of pages that name an extra."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.needs(*NEEDS.get(page.stem, []))) for page in PAGES],
    ids=lambda page: f"{page.parent.name}/{page.stem}",
)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    if lacks_weights(page):
        pytest.skip("no weights of ImageNet here; set ETLRUN_SHARED")
    wrong = faults(page, tmp_path)
    assert not wrong, "\n".join(["", *wrong])


def test_tutorials_and_how_to_pages_are_of_one_shape() -> None:
    """Commands and their outputs, and where to go on; how-to pages are recipes, and no guides."""
    assert len([page for page in PAGES if page.parent.name == "tutorials"]) == 6
    for page in PAGES:
        languages = {block.language for block in blocks(page)}
        text = page.read_text(encoding="utf-8")
        assert {"bash", ""} <= languages, page.name
        assert "](../" in text.rpartition("\n```\n")[2], page.name
        if page.parent.name == "tutorials":
            assert "\n## What next\n" in text, page.name
    assert not {*NEEDS} - {page.stem for page in PAGES}


PASTES = pastes()
GRID = next(command for command in commands() if "extract.cycle_length=1,2,4" in command).removeprefix(f"{ETLRUN} ")
TABLE = yaml.safe_load((ROOT / "tests" / "golden" / "docs.yaml").read_text(encoding="utf-8"))
ELSEWHERE: dict[str, str] = TABLE["elsewhere"]
NO_OVERRIDES = re.compile(
    rf"{ETLRUN} (plan (?!-m)|config|diff|verify|check|report|data prepare|runs|evaluate|predict|export"
    r"|cache (?!why)|-m sweep\.resume)"
)
"""Commands to which no override is appended: they take none, or show what an override does."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a command is run.

    Attributes:
        more: Overrides that are appended.
        again: Further runs, with what each has beside these; what they print follows.
        settled: Overrides of another run, whose verdict is sure; that of this one depends on the machine.
        after: The command that is run before in the same folder, and leaves what this one is about.
        status: The exit status.
    """

    more: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    after: str = ""
    status: int = 0


def _ways() -> Iterator[tuple[str, Way]]:
    for row in TABLE["ways"]:
        more, settled = (tuple(shlex.split(row.get(name, ""))) for name in ("more", "settled"))
        after, again = row.get("after", "").replace("GRID", GRID), tuple(row.get("again", ()))
        way = Way(more=more, again=again, settled=settled, after=after, status=row.get("status", 0))
        yield from ((command.replace("GRID", GRID), way) for command in row["commands"].splitlines())


WAYS = dict(_ways())


def also_said(folder: Path) -> str:
    """What the sweep in `folder` would say, had another config turned out better, alone or beside others."""
    results, ledger = collect(folder), Ledger.open(folder)
    assert isinstance(results, Results)
    values = [partial(getattr, config, "values") for config in ledger.configs]
    better = {
        config.number: replace(config, gain=replace(config.gain, call=BETTER))
        if config.gain.call != UNTOLD and config.number
        else config
        for config in results.configs
    }
    printed = io.StringIO()
    for number, config in better.items():
        cheapest = {**better, number: replace(config, peak_rss_bytes=1.0)}
        for tied in ([number], [number, *better]):
            decided = decide([*cheapest.values()], tied, lambda other: compare_configs(values[0], values[other]))
            with redirect_stdout(printed):
                show(report.of_sweep(replace(results, decision=decided)))
    return printed.getvalue()


GREYED = f"{ETLRUN} {shlex.join(WORDS)}"
GROVE = [command for command in commands() if re.search(r"model=tower|loss=quantile", command)]
OUTSIDE = {f"{ETLRUN} diff main HEAD": changed_configs, GREYED: grey_package, **dict.fromkeys(GROVE, grove_package)}
"""Commands on what is not there, and how they are run where it is."""


class Docs:
    """Runs each command once for all workers: in a folder of its own, followed by those that are `after` it."""

    def __init__(self, once: Once, patch: pytest.MonkeyPatch) -> None:
        self.once, self.patch = once, patch
        self.data_dir = f"dataset.data_dir={once('docs_photos', write_photos)}"
        patch.setenv("TFDS_DATA_DIR", self.data_dir.partition("=")[2])

    def said(self, command: str) -> tuple[str, list[str]]:
        """What a command prints, and what it may print as well; see `lacking`."""
        first = f"{ETLRUN} {after}" if (after := way_of(command).after) else command
        name = f"docs_{hashlib.sha256(first.encode()).hexdigest()[:8]}"
        wrong, text, others = json.loads((self.once(name, partial(self._run_all, first)) / "said").read_text())[command]
        assert not wrong, text
        return text, others

    def _run_all(self, first: str, made: Path) -> None:
        folder, appended, said = made / "cwd", list[str](), {}
        write_configs(folder)
        self.patch.setenv("XDG_CACHE_HOME", str(folder / "caches"))
        for command in (first, *(each for each in commands() if f"{ETLRUN} {way_of(each).after}" == first)):
            way = way_of(command)
            run = partial(self._run, command, folder, appended)
            ways = [[*way.more, *other.split()] for other in ("", *way.again)]
            runs = [run(more) for more in (*ways, *([way.settled] if way.settled else []))]
            texts = [text for _, text in runs]
            others = texts[len(ways) :]
            others += [also_said(path.parent) for path in folder.glob(f"outputs/*/*/{SWEEP}") if command == first]
            wrong = any(status != way.status for status, _ in runs)
            said[command] = wrong, "".join(texts[: len(ways)]), others
        (made / "said").write_text(json.dumps(said))

    def _run(self, command: str, folder: Path, appended: list[str], more: Sequence[str]) -> tuple[int, str]:
        is_of_tfds = not NO_OVERRIDES.match(command) and not re.search(r"dataset\.(dir|files|folder)=", command)
        added = [*more, self.data_dir] if is_of_tfds else [*more]
        words = [*shlex.split(_filled(command, folder).removeprefix(ETLRUN)), *added]
        status, text = OUTSIDE.get(command, ran)(words, folder)
        appended += added
        for word in appended:
            text = re.sub(rf" {re.escape(word)}(?![\w.])", "", text)
        return status, text


def way_of(command: str) -> Way:
    return WAYS.get(command.removeprefix(ETLRUN).strip(), Way())


def _filled(command: str, folder: Path) -> str:
    """With the first run or sweep of the folder where a reader has one."""
    first = min(folder.glob("outputs/*/*"), default=folder).relative_to(folder)
    command = re.sub(r"outputs/\d\S+|\b(RUN|SWEEP)\b", str(first), command)
    return re.sub(r"\bN\b", "0", command).replace("…", GRID.removeprefix("-m model=emulated"))


@pytest.fixture(scope="module")
def docs(once: Once) -> Iterator[Docs]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["etlrun"])
        quick_probes(patch)
        shallow(patch)
        yield Docs(once, patch)


def is_run(command: str) -> bool:
    return not any(part in command for part in ELSEWHERE)


@pytest.mark.parametrize("command", [*filter(is_run, commands())])
def test_a_command_of_the_docs_ends_as_it_should_and_prints_what_is_pasted(command: str, docs: Docs) -> None:
    text, others = docs.said(command)
    assert text.strip()
    wrong = [line for paste in PASTES if paste.command == command for line in lacking(paste, text, others)]
    assert not wrong, "\n".join(["", *wrong])


def is_composed_here(command: str) -> bool:
    """Whether the command is of a config that is right, and there without anything that a reader has."""
    way = way_of(command)
    is_of_none = re.match(rf"{ETLRUN} (config schema|runs |data prepare photos )", command)
    return is_run(command) and not (
        is_of_none or way.after or way.status or "--config-dir" in command or command in OUTSIDE
    )


@pytest.mark.parametrize("command", [*filter(is_composed_here, commands())])
def test_a_command_of_the_docs_is_right_as_it_stands(command: str, tmp_path: Path) -> None:
    words = shlex.split(command.removeprefix(ETLRUN))
    if words[:1] in (["show"], ["doctor"]):
        words = [word for word in words[1:] if "=" in word]
    if words[:2] == ["data", "stats"]:
        words = words[2:]
    if words[:1] not in (["plan"], ["config"], ["diff"], ["verify"]):
        words.insert(0, "plan")
    status, text = ran(words, tmp_path)
    assert (status, bool(text)) == (0, True), text


def test_all_ways_are_of_commands_in_the_docs_and_all_that_are_left_out_are_there() -> None:
    assert {f"{ETLRUN} {way}".strip() for way in WAYS}.union(OUTSIDE) <= {*commands()}
    assert [part for part in ELSEWHERE if not any(part in command for command in commands())] == []
    assert [command for command in filter(is_run, commands()) if not command.startswith(ETLRUN)] == []
    assert {paste.command for paste in PASTES} <= {*filter(is_run, commands())}
    assert (len(commands()) >= 40, len(PASTES) >= 20) == (True, True)


def test_ci_installs_and_tests_as_the_readme_says_and_runs_what_that_leaves_out() -> None:
    root = Path(__file__).parents[1]
    command = next(line.strip() for line in (root / "README.md").read_text().splitlines() if line.endswith("&& pytest"))
    assert {command, "pytest -m slow"} <= {line.strip() for line in (root / ".ci" / "run").read_text().splitlines()}
