"""A git repository of a person's own configs, with real commits and pull requests."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

SMALL = """\
# @package _global_
# python -m etlrun experiment=small
# A small run. Costs a minute.
defaults:
  - override /cache: none
  - override /transform: small_48
  - _self_
trainer: {epochs: 2}
"""
OTHER = """\
# @package _global_
# python -m etlrun experiment=other
# Another one. Costs a minute.
trainer:
  epochs: 3
"""
TRANSFORM = """\
# 48x48 pixels.
defaults: [small_64, _self_]
resize:
  size: [48, 48]
"""


class Repository:
    """Of git, in `folder`, with its files in one commit; configs are in its folder `name`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.configs = folder, folder / name
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("The beginning")

    @classmethod
    def small(cls, folder: Path) -> "Repository":
        """With three configs in `mine`."""
        for name, text in (
            ("experiment/small.yaml", SMALL),
            ("experiment/other.yaml", OTHER),
            ("transform/small_48.yaml", TRANSFORM),
        ):
            path = folder / "mine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return cls(folder, "mine")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.configs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.configs / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def change(self, files: Mapping[str, str | Mapping[str, str] | None]) -> None:
        """Write texts, replace some in what is there, or remove what is to have nothing."""
        for name, of in files.items():
            if of is None:
                (self.configs / name).unlink()
            elif isinstance(of, str):
                self.write(name, of)
            else:
                for old, new in of.items():
                    self.replace(name, old, new)

    def commit(self, message: str) -> str:
        """Everything; the name of the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def pull_request(self, message: str) -> str:
        """Commit everything on a branch, and check out its merge, as actions/checkout does; the name of the commit."""
        self.git("checkout", "--quiet", "-B", "feature")
        head = self.commit(message)
        self.git("checkout", "--quiet", "--detach", "main")
        self.git("merge", "--quiet", "--no-ff", "--message", "Merge", "feature")
        return head
