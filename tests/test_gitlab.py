"""The recipe for GitLab: its script, run as a runner runs it, with a server that keeps the notes of a merge request."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configs import CONF
from tests.repository import Repository

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")]

RECIPE = yaml.safe_load((CONF.parent / "docs" / "recipes" / "gitlab-ci.yml").read_text(encoding="utf-8"))["etlrun"]
NOTES = "/api/v4/projects/3/merge_requests/7/notes"
TOKEN = "of the project"  # noqa: S105 - of no one
CHECKED = "checked 9 configs of 2 experiments and of options in S: no fault\n"


class Server(ThreadingHTTPServer):
    """GitLab: keeps the notes of merge request 7, in the order in which they were written."""

    notes: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        assert self.path == f"{NOTES}?per_page=100&sort=asc"
        self._answer(json.dumps(self.server.notes))

    def do_POST(self) -> None:
        assert self.path == NOTES
        self.server.notes.append({"id": len(self.server.notes), "body": self._body()})
        self._answer("{}")

    def do_PUT(self) -> None:
        self.server.notes[int(self.path.removeprefix(f"{NOTES}/"))]["body"] = self._body()
        self._answer("{}")

    def _body(self) -> str:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        return urllib.parse.parse_qs(text)["body"][0]

    def _answer(self, text: str) -> None:
        self.send_response(200 if self.headers["PRIVATE-TOKEN"] == TOKEN else 403)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
        """Nothing."""


@pytest.fixture
def gitlab() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.notes = [{"id": 0, "body": "Looks good"}]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository.small(tmp_path / "repository")
    made.write("etlrun-policy.yaml", "data: {label: data approved}\n")
    made.commit("Policy")
    made.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    made.commit("Smaller")
    return made


def run(repository: Repository, gitlab: Server, **more: str) -> subprocess.CompletedProcess[str]:
    """The script, as a runner runs it."""
    runner = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(CONF.parent),
        "CI_API_V4_URL": f"http://127.0.0.1:{gitlab.server_port}/api/v4",
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.git("rev-parse", "HEAD~1"),
    }
    environment = {**os.environ, **runner, **RECIPE["variables"], **more}
    command = ["bash", "-eo", "pipefail", "-c", "\n".join(RECIPE["script"])]
    return subprocess.run(command, cwd=repository.folder, env=environment, capture_output=True, text=True, check=False)


def untimed(answer: subprocess.CompletedProcess[str]) -> str:
    return re.sub(r"[\d.]+ s:", "S:", answer.stdout)


def test_a_merge_request_is_judged_and_its_own_note_renewed(repository: Repository, gitlab: Server) -> None:
    assert run(repository, gitlab, ETLRUN_TOKEN=TOKEN).returncode == 4
    assert gitlab.notes[1]["body"].startswith("<!-- etlrun mine -->\n### etlrun: ")
    assert "\n#### policy: 1 rule broken (" in gitlab.notes[1]["body"]
    answer = run(repository, gitlab, ETLRUN_TOKEN=TOKEN, CI_MERGE_REQUEST_LABELS="ready,data approved")
    assert (answer.returncode, untimed(answer), answer.stderr) == (0, CHECKED, "")
    assert "\n#### policy: passed (" in gitlab.notes[1]["body"]
    assert (gitlab.notes[0]["body"], len(gitlab.notes)) == ("Looks good", 2)


def test_a_token_that_may_not_comment_hides_no_broken_rule(repository: Repository, gitlab: Server) -> None:
    answer = run(repository, gitlab, ETLRUN_TOKEN="of a stranger")  # noqa: S106
    assert answer.returncode == 4
    assert untimed(answer) == f"{CHECKED}etlrun: no comment; the review is among the artifacts\n"
    assert len(gitlab.notes) == 1


def test_a_config_that_cannot_be_composed_fails_the_check_and_one_of_the_base_alone_a_rule(
    repository: Repository, gitlab: Server
) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0")
    repository.commit("Wrong")
    answer = run(repository, gitlab)
    assert (
        answer.returncode,
        "mine/experiment/other.yaml:5: trainer.epochs, in experiment=other" in answer.stderr,
    ) == (2, True)
    repository.replace("experiment/other.yaml", "epochs: 0", "epochs: 3")
    repository.commit("Right")
    assert run(repository, gitlab).returncode == 2
    assert run(repository, gitlab, CI_MERGE_REQUEST_LABELS="data approved").returncode == 0
    repository.replace("transform/small_48.yaml", "[32, 32]", "[40, 40]")
    repository.commit("Smaller")
    assert run(repository, gitlab, CI_MERGE_REQUEST_TARGET_BRANCH_SHA="HEAD~2").returncode == 2


def test_a_base_that_is_not_there_fails(repository: Repository, gitlab: Server) -> None:
    assert run(repository, gitlab, CI_MERGE_REQUEST_TARGET_BRANCH_SHA="gone").returncode == 2
