"""What a person gets of a pull request, and what commands say of changes of configs."""

import contextlib
import io
import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from etlrun.cli.main import main
from tests.configs import CONF
from tests.golden import Case
from tests.repository import Repository

GOLDEN = CONF.parent / "tests" / "golden" / "pulls"
PULLS = yaml.safe_load(GOLDEN.with_suffix(".yaml").read_text(encoding="utf-8"))
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


def of(pull: dict[str, Any], folder: Path) -> str:
    """What a person gets of a pull request: the comment, the annotations, and how the checks end."""
    repository = Repository.small(folder / "repository")
    repository.write("experiment/cached.yaml", CACHED)
    repository.write("etlrun-policy.yaml", KINDS)
    with contextlib.chdir(repository.folder):
        repository.commit("The base")
        repository.git("checkout", "--quiet", "-b", "pull")
        repository.change(pull["then"])
        repository.commit(pull["why"])
        labels = pull.get("labels", ())
        base = ("--config-dir", "mine", "--format")
        comment, said, status = told(
            "diff", "main", "pull", *base, "markdown", *(f"--label={label}" for label in labels)
        )
        remarks, _, ended = told("check", *base, "github")
    return (
        f"# {pull['why']}\n\nLabels: {', '.join(labels) or 'none'}\n\n"
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
    """A machine with none of a user's caches."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as caches:
        patch.setenv("XDG_CACHE_HOME", caches)
        yield
