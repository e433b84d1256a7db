"""GitHub's runner: the steps of an action, run as it runs them, with a stand-in for `gh` that keeps comments."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.configs import CONF

ROOT = CONF.parent
TOKEN = "of the workflow"  # noqa: S105 - of no one
BRANCH = "feature"
GH = f"""\
#!{sys.executable} -I
# Stands in for GitHub: knows one pull request, and keeps its comments in a file.
import json, os, sys

words, path = sys.argv[1:], os.environ["GITHUB"]
known = json.load(open(path))
if known["answers"] is not None:
    sys.stdout.buffer.write(bytes.fromhex(known["answers"]))
    sys.stderr.buffer.write(bytes.fromhex(known["answers"]))
    sys.exit(known["ends"])
if known["refuses"]:
    sys.exit(known["refuses"])
assert os.environ["GH_TOKEN"] == {TOKEN!r}
if words[1] == "graphql":
    number = next(word for word in words if word.startswith("number=")).removeprefix("number=")
    for page in [[each] for each in known["comments"]] or [[]]:  # as --paginate prints pages
        pull = {{**known["pull"], "headRefName": known["numbers"][number], "comments": {{"nodes": page}}}}
        print(json.dumps({{"data": {{"repository": {{"pullRequest": pull}}}}}}))
elif words[2] == "DELETE":
    gone = int(words[3].removeprefix("repos/me/mine/issues/comments/"))
    known["comments"] = [each for each in known["comments"] if each["databaseId"] != gone]
    json.dump(known, open(path, "w"))
else:
    body = json.load(sys.stdin)["body"]
    place = words[3].removeprefix("repos/me/mine/issues/")
    if words[2] == "POST":
        assert place == "7/comments"
        known["comments"].append({{"databaseId": len(known["comments"]), "body": body, "viewerDidAuthor": True}})
    else:
        (own,) = (each for each in known["comments"] if f"comments/{{each['databaseId']}}" == place)
        own["body"] = body
    json.dump(known, open(path, "w"))
"""


@dataclass
class GitHub:
    """A pull request, number 7 of me/mine, on a runner with the folder `scratch`.

    Attributes:
        sha: Head of the run.
        head: The head of the pull request now; empty for that of the run.
        labels: Names of its labels.
        refuses: What `gh` says instead of obeying; empty for a token that may write.
        answers: Bytes that `gh` prints instead of obeying, and its exit status; None for neither.
        has_gh: Whether the runner has `gh`.
        run_id: Number of the run.
        numbers: Branches of the pull requests, by their numbers.
    """

    scratch: Path
    sha: str
    head: str = ""
    labels: tuple[str, ...] = ()
    refuses: str = ""
    answers: tuple[bytes, int] | None = None
    has_gh: bool = True
    run_id: int = 100
    numbers: dict[int, str] = field(default_factory=lambda: {7: BRANCH})
    comments: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    steps: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def comment(self, body: str, *, is_own: bool = True) -> None:
        """Put a comment there that has been written before."""
        self.comments.append({"databaseId": len(self.comments), "body": body, "viewerDidAuthor": is_own})

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments]

    def run(self, folder: Path, action: str = "action.yml", **inputs: str) -> dict[str, int]:
        """Run the action in `folder`; the exit status of each step that was run, by its name."""
        pull = {"number": 7, "head": {"sha": self.sha, "ref": BRANCH, "repo": {"full_name": "me/mine"}}}
        event = {
            "pull_request": {**pull, "labels": [{"name": name} for name in self.labels]},
            "workflow_run": {
                "id": self.run_id,
                "head_sha": self.sha,
                "head_branch": BRANCH,
                "head_repository": {"full_name": "me/mine"},
            },
        }
        return self.run_on(event, folder, action, **inputs)

    def run_on(self, event: dict[str, Any], folder: Path, action: str = "action.yml", **inputs: str) -> dict[str, int]:
        """Run the action in `folder` on an event."""
        known = yaml.safe_load((ROOT / action).read_text(encoding="utf-8"))
        github = {"token": TOKEN, "repository": "me/mine", "run_id": self.run_id, "event": event}
        found: dict[str, Any] = {"github": github, "steps": {}}
        names = [name.replace("_", "-") for name in inputs]
        defaults = {name: evaluated(given["default"], found) for name, given in known["inputs"].items()}
        found["inputs"] = {**defaults, **dict(zip(names, inputs.values(), strict=True))}
        self.steps = {}
        for step in known["runs"]["steps"]:
            if "if" not in step and any(answer.returncode for answer in self.steps.values()):
                continue
            assert step.get("if", "") in {"", "${{ !cancelled() }}"}
            environment = {name: evaluated(value, found) for name, value in step.get("env", {}).items()}
            self.steps[step["name"]] = self._step(step["run"], folder, (ROOT / action).parent, environment)
            if "id" in step:
                lines = (self.scratch / "output").read_text(encoding="utf-8").splitlines()
                found["steps"][step["id"]] = {"outputs": dict(line.split("=", 1) for line in lines)}
        self.outputs = {name: evaluated(of["value"], found) for name, of in known.get("outputs", {}).items()}
        return {name: answer.returncode for name, answer in self.steps.items()}

    def _step(
        self, script: str, folder: Path, action: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        pull = {"headRefOid": self.head or self.sha, "headRepository": {"nameWithOwner": "me/mine"}}
        known = {"numbers": self.numbers, "pull": pull, "comments": self.comments, "refuses": self.refuses}
        known |= (
            {"answers": None} if self.answers is None else {"answers": self.answers[0].hex(), "ends": self.answers[1]}
        )
        state = self.scratch / "github.json"
        state.write_text(json.dumps(known), encoding="utf-8")
        (self.scratch / "output").touch()
        runner = {
            "PATH": str(self._programs()),
            "PYTHONPATH": str(ROOT),
            "GITHUB": str(state),
            "GITHUB_ACTION_PATH": str(action),
            "GITHUB_OUTPUT": str(self.scratch / "output"),
            "GITHUB_STEP_SUMMARY": str(self.scratch / "summary.md"),
            "RUNNER_TEMP": str(self.scratch),
        }
        # As GitHub runs `shell: bash`.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        answer = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **runner, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        self.comments = json.loads(state.read_text(encoding="utf-8"))["comments"]
        return answer

    def _programs(self) -> Path:
        """The folder of all programs that the runner has."""
        folder = self.scratch / "programs"
        folder.mkdir(exist_ok=True)
        python = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
        for name, text in {"python": python, "python3": python, **({"gh": GH} if self.has_gh else {})}.items():
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755)
        for name in {"bash", "git"} - {path.name for path in folder.iterdir()}:
            (folder / name).symlink_to(str(shutil.which(name)))
        return folder


def evaluated(text: str, known: dict[str, Any]) -> str:
    """The text with its expressions evaluated: paths, `a || b`, `toJSON(path)` and `join(path, ',')`."""

    def value(expression: str) -> str:
        words = [each.strip() for each in expression.split("||")]
        return next(filter(None, map(one, words)), "")

    def one(word: str) -> str:
        if word.startswith("toJSON("):
            return json.dumps(_at(word[7:-1], known), indent=2)
        if word.startswith("join("):
            return ",".join(_at(word[5:].partition(",")[0], known))
        found = _at(word, known)
        return "" if found is None else str(found)

    return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: value(match[1]), text)


def _at(path: str, known: Any) -> Any:
    """The value at a path; None where there is none."""
    head, _, rest = path.partition(".")
    if head == "*":
        return [_at(rest, each) for each in known or []]
    found = known.get(head) if isinstance(known, dict) else None
    if rest.startswith("*"):
        return _at(rest, found)
    return _at(rest, found) if rest else found
