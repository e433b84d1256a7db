"""Eighteen pull requests, and what a person gets of each: a golden file each."""

import contextlib
import io
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from etlrun.cli.main import main
from etlrun.review import check
from tests.configs import CONF
from tests.golden import Case
from tests.repository import OTHER, Repository

GOLDEN = CONF.parent / "tests" / "golden" / "pulls"
KINDS = """\
# What a change of each kind needs.
data: {label: data-change-approved}
order: {label: order-change-approved}
training: {label: training-change-approved}
"""
CACHED = """\
# @package _global_
# A run with a cache on disk. Costs a minute.
defaults:
  - override /model: emulated
  - override /cache: disk
  - _self_
dataset: {data_dir: /nowhere}
trainer: {epochs: 3}
"""
SMOOTH = "transform: {resize: {antialias: true}}\n"
ONE_MORE = "# @package _global_\n# {} Costs a minute.\ndefaults: [override /model: emulated, _self_]\n"
Change = Callable[[Repository], None]


@dataclass(frozen=True, kw_only=True)
class Pull:
    """A pull request: what it is, a change of the configs of the base, and its labels."""

    about: str
    change: Change
    labels: tuple[str, ...] = ()


def replaced(name: str, old: str, new: str) -> Change:
    return lambda repository: repository.replace(name, old, new)


def written(name: str, text: str) -> Change:
    return lambda repository: repository.write(name, text)


def removed(name: str) -> Change:
    return lambda repository: (repository.configs / name).unlink()


def both(*changes: Change) -> Change:
    def change(repository: Repository) -> None:
        for each in changes:
            each(repository)

    return change


SMALLER = replaced("transform/small_48.yaml", "[48, 48]", "[32, 32]")
PULLS = {
    "01-speed": Pull(
        about="Batches are not prefetched any more: only the speed.",
        change=replaced("experiment/small.yaml", "trainer:", "load: {prefetch: 0}\ntrainer:"),
    ),
    "02-data": Pull(about="Smaller images, without the label that it needs.", change=SMALLER),
    "03-data-approved": Pull(
        about="The same with the label.", change=SMALLER, labels=("data-change-approved", "ready")
    ),
    "04-order": Pull(
        about="A smaller shuffle buffer, where nothing is trained.",
        change=written("experiment/cached.yaml", f"{CACHED}load: {{shuffle_buffer: 100}}\n"),
    ),
    "05-training": Pull(
        about="Another learning rate.",
        change=replaced("experiment/other.yaml", "epochs: 3", "epochs: 3\n  learning_rate: 0.01"),
    ),
    "06-cache": Pull(
        about="A cache on disk that is filled again.",
        change=written("experiment/cached.yaml", CACHED + SMOOTH),
        labels=("data-change-approved",),
    ),
    "07-new": Pull(
        about="A new experiment.", change=written("experiment/new.yaml", ONE_MORE.format("Tries the emulated model."))
    ),
    "08-removed": Pull(about="An experiment is removed.", change=removed("experiment/other.yaml")),
    "09-no-yaml": Pull(
        about="A bracket is missing.", change=replaced("transform/small_48.yaml", "[48, 48]", "[48, 48")
    ),
    "10-unknown-key": Pull(
        about="A key is misspelt.",
        change=replaced("experiment/other.yaml", "epochs: 3", "epochs: 3\n  leraning_rate: 1"),
    ),
    "11-policy-loosened": Pull(
        about="The rule goes with the change that it forbids.",
        change=both(SMALLER, replaced("etlrun-policy.yaml", "data: {label: data-change-approved}\n", "")),
    ),
    "12-policy-wrong": Pull(
        about="The policy has faults afterwards.",
        change=replaced("etlrun-policy.yaml", "order: {label: order-change-approved}", "ordering: {label: 3}"),
    ),
    "13-unused-file": Pull(
        about="A file in a folder that is no group.",
        change=written("transforms/tiny.yaml", "resize: {size: [32, 32]}\n"),
    ),
    "14-step": Pull(
        about="One more step, which is random.",
        change=replaced(
            "transform/small_48.yaml", "resize:", "steps: [decode, resize, random_flip, scale_minus_one_one]\nresize:"
        ),
    ),
    "15-option": Pull(
        about="An option that no experiment uses.",
        change=written("load/large.yaml", "# Large batches.\ndefaults: [shuffled, _self_]\nbatch_size: 256\n"),
    ),
    "16-renamed": Pull(
        about="An experiment has another name.",
        change=both(removed("experiment/other.yaml"), written("experiment/baseline.yaml", OTHER)),
    ),
    "17-comment": Pull(
        about="A comment says more.",
        change=replaced("experiment/small.yaml", "A small run.", "A small run, for tests."),
    ),
    "18-secret": Pull(
        about="A config that would print a token of the machine that reviews it.",
        change=replaced("experiment/other.yaml", "trainer:", 'model: {name: "${oc.env:GITHUB_TOKEN}"}\ntrainer:'),
    ),
}


def of(pull: Pull, folder: Path) -> str:
    """What a person gets of a pull request: the comment, the annotations, and how the checks end."""
    repository = Repository.small(folder / "repository")
    repository.write("experiment/cached.yaml", CACHED)
    repository.write("etlrun-policy.yaml", KINDS)
    with contextlib.chdir(repository.folder):
        repository.commit("The base")
        repository.git("checkout", "--quiet", "-b", "pull")
        pull.change(repository)
        repository.commit(pull.about)
        labels = [f"--label={label}" for label in pull.labels]
        base = ("--config-dir", "mine", "--format")
        comment, said, status = told("diff", "main", "pull", *base, "markdown", *labels)
        remarks, _, ended = told("check", *base, "github")
    return (
        f"# {pull.about}\n\nLabels: {', '.join(pull.labels) or 'none'}\n\n"
        f"`check` ends with status {ended}:\n\n{_block(remarks)}\n"
        f"`diff` ends with status {status}:\n\n{_block(said)}\n{comment}"
    )


def told(*words: str) -> tuple[str, str, int]:
    """What a command prints, its errors, and its exit status."""
    output, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return output.getvalue(), errors.getvalue(), status


def transcript(case: Case, repository: Repository) -> str:
    """What commands say of the changes of a case in the repository of the current folder, and their exit statuses."""
    for files in case.get("commits", ()):
        repository.change(files)
        repository.commit("Change")
    repository.change(case.get("then", {}))
    said = []
    for words in case["words"]:
        given = shlex.split(words)
        output, errors, status = told(*given, *([] if "--config-dir" in given else ["--config-dir", "mine"]))
        if case.get("keys") and "json" in given and output:
            document = json.loads(output)
            output = "".join(f"{key}: {json.dumps(document[key], indent=1)}\n" for key in case["keys"])
        said.append(f"$ {words}\n{output}{errors}({status})\n")
    text = "\n".join(said).replace(str(repository.folder), "REPOSITORY")
    return re.sub(r"(?<= in )[\d.]+ s", "N s", text)


def _block(text: str) -> str:
    return f"```\n{text}```\n" if text else "It says nothing.\n"


@contextlib.contextmanager
def the_same_everywhere() -> Iterator[None]:
    """A machine with the same cores and memory, and with none of a user's caches."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as caches:
        patch.setattr(check, "cores", lambda: 8)
        patch.setattr(check, "free_memory_bytes", lambda: 16_000_000_000)
        patch.setenv("XDG_CACHE_HOME", caches)
        yield
