"""Writes the comment of a run of the Action on its pull request with `gh`, or renews that of an older run.

The folder may come from a fork, which can put anything into it: the number in it counts for pull requests of the branch
of the run alone.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_QUERY = """
query($owner: String!, $name: String!, $number: Int!, $endCursor: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      headRefOid
      headRefName
      headRepository { nameWithOwner }
      comments(first: 100, after: $endCursor) {
        pageInfo { hasNextPage endCursor }
        nodes { databaseId body viewerDidAuthor }
      }
    }
  }
}
"""
_TIMEOUT_S = 60
_MOST_CHARACTERS = 300
"""Maximum length of an answer in a warning."""
_SHORT = 7
"""Characters of a SHA that are shown."""


class _NotWrittenError(Exception):
    """Why a comment is not written."""


def main(folder: Path) -> None:
    """Write the comment that a folder has; exit with status 1 and a warning if that is not possible."""
    try:
        _comment(folder)
    except _NotWrittenError as error:
        print(f"::warning title=etlrun::{escaped(f'no comment, since {error}; the summary of the run has the review')}")
        raise SystemExit(1) from None


def escaped(text: str) -> str:
    """Return `text` as the message of a workflow command, which ends with its line."""
    return text.strip().replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _comment(folder: Path) -> None:
    repository, sha, run = (os.environ[name] for name in ("REPOSITORY", "HEAD_SHA", "RUN_ID"))
    number, name, text = (_read(folder / file) for file in ("number", "name", "comment.md"))
    if not re.fullmatch(r"[0-9]{1,9}", number):
        raise _NotWrittenError(f"{number!r} is not the number of a pull request")
    pull, comments = _pull(repository, number)
    if f"{(pull['headRepository'] or {}).get('nameWithOwner')}:{pull['headRefName']}" != os.environ["BRANCH"]:
        raise _NotWrittenError(f"pull request {number} is not of the branch of this run")
    marker = " ".join(filter(None, ("<!-- etlrun", _in_marker(name), "-->")))
    own = [comment for comment in comments if comment["viewerDidAuthor"] and comment["body"].startswith(marker)]
    newest = max((_run_of(comment["body"]) for comment in own), default=0)
    if newest > int(run):
        print(f"the comment is of a newer run, {newest}")
        return
    body = f"{marker}\n<!-- head {sha} run {run} -->\n{_note(sha, pull['headRefOid'])}{text}"
    method, place = ("PATCH", f"comments/{own[0]['databaseId']}") if own else ("POST", f"{number}/comments")
    words = ("--method", method, f"repos/{repository}/issues/{place}", "--input", "-", "--silent")
    _gh("api", *words, given=json.dumps({"body": body}))
    for other in own[1:]:  # of runs that had begun at the same time
        _gh("api", "--method", "DELETE", f"repos/{repository}/issues/comments/{other['databaseId']}", "--silent")


def _in_marker(name: str) -> str:
    """Return the name of a use in the comment of HTML that marks its own: another one for each, without `--`."""
    return re.sub(r"[^\w./ -]|(?<=-)-|(?<= ) |^ | $", lambda mark: f"&#{ord(mark[0])};", name)


def _note(sha: str, head: str) -> str:
    """Return what stands above a comment of an old head."""
    text = f"This comment is of {sha[:_SHORT]}; the head is {head[:_SHORT]}, whose run renews it.\n\n"
    return text if sha != head else ""


def _run_of(body: str) -> int:
    """Return the number of the run that has written a comment; 0 if it has none."""
    found = re.match(r".*\s*<!-- head \w+ run (\d+) -->", body)
    return int(found[1]) if found else 0


def _pull(repository: str, number: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a pull request and its comments, which come in pages, a document each."""
    owner, _, name = repository.partition("/")
    values = ("-f", f"owner={owner}", "-f", f"name={name}", "-F", f"number={number}", "-f", f"query={_QUERY}")
    answer, pages = _gh("api", "graphql", "--paginate", *values).strip(), []
    text = answer
    try:
        while text:
            page, end = json.JSONDecoder().raw_decode(text)
            text = text[end:].lstrip()
            pages.append(page["data"]["repository"]["pullRequest"])
        comments = [
            {**comment, "body": "" + comment["body"]} for page in pages for comment in page["comments"]["nodes"]
        ]
        return pages[0], comments
    except (ValueError, LookupError, TypeError) as error:
        shown = answer[:_MOST_CHARACTERS] or "nothing"
        raise _NotWrittenError(f"gh answered {shown}, which has no such pull request") from error


def _gh(*words: str, given: str = "") -> str:
    try:
        answer = subprocess.run(
            ["gh", *words],
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NotWrittenError(f"gh {error}") from error
    if answer.returncode != 0:
        raise _NotWrittenError(answer.stderr.strip() or f"gh ended with status {answer.returncode}")
    return answer.stdout


def _read(path: Path) -> str:
    """Return the text of a file; a link of a foreign artifact might lead to anything."""
    if path.is_symlink() or not path.is_file():
        raise _NotWrittenError(f"{path.name} is not a file in what the run has left")
    return path.read_text(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
