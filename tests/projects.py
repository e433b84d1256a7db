"""Projects of `etlrun init`, in repositories with real commits."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from etlrun.cli.parsers import call
from tests.repository import Repository

_SAID = """\
import json, sys
from tests.pulls import told
print(json.dumps([told(*words) for words in json.loads(sys.argv[1])]))
"""
CHECKOUT = str(Path(__file__).parents[1])
ENTRIES = """\
[etlrun.stages]
trees_grey = trees.steps:Grey
[etlrun.models]
trees_net = trees.models:SmallNet
"""


class Said(NamedTuple):
    """What a command prints, its errors, and its exit status."""

    out: str
    err: str
    status: int


class Project:
    """A project of `etlrun init` in a repository, which an environment has as pip installs it with `-e`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site, self.scratch = folder / "trees", folder / "site", folder / "tmp"
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            call("init", ["trees"])
        self.scratch.mkdir()
        self.describe(ENTRIES)
        self.repository = Repository(self.folder, "conf")
        self.repository.git("checkout", "--quiet", "-b", "change")

    def describe(self, entries: str) -> None:
        info = self.site / "trees-0.1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trees\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(entries)

    def replace(self, name: str, old: str, new: str) -> None:
        self.repository.replace(f"../trees/{name}", old, new)

    def environment(self) -> dict[str, str]:
        paths = [str(self.folder), str(self.site), CHECKOUT]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(self.scratch)}

    def say(self, *commands: tuple[str, ...], environment: dict[str, str] | None = None) -> list[Said]:
        """What commands say, one after the other in a process of the project; none leaves anything."""
        done = subprocess.run(
            [sys.executable, "-P", "-c", _SAID, json.dumps(commands)],
            cwd=self.folder,
            env=environment or self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert self.left() == []
        return [Said(*of) for of in json.loads(done.stdout)]

    def left(self) -> list[str]:
        """What is left of processes with files of a revision."""
        assert self.repository.git("worktree", "list").count("\n") == 0
        return [path.name for path in self.scratch.glob("etlrun-*")]
