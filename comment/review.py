"""Step `Diff` of the Action: the effect of a pull request, as its comment's text and as outputs for the workflow."""

import html
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from comment import escaped

_HEADING = "### etlrun"
_BROKEN, _REFUSED = 4, 2
"""Exit statuses of `etlrun diff`."""
_MOST_CHARACTERS = 30_000
"""Maximum length of faults: an environment has room for four times as much, and a comment for twice."""
_OUTPUTS = ("kinds", "changed", "failed", "matrix")


def main() -> None:
    """Write what `comment.py` takes to a new folder, and outputs; the last step fails by the status among them."""
    given = os.environ
    base, head = _short(given["BASE"]), _short("HEAD")
    words = [base, head, *(f"--label={label}" for label in _labels(given["LABELS"]))]
    for option, name in (("--config-dir", "CONFIG_DIR"), ("--fail-on", "FAIL_ON")):
        words += [f"{option}={given[name]}"] if given[name] else []
    command = ["verify", f"--examples={given['EXAMPLES']}"] if given["EXAMPLES"] else ["diff"]
    review = _etlrun(*command, *words, "--format=markdown")
    status, message, outputs = review.returncode, _faults(review.stderr), {}
    if review.stdout.startswith(_HEADING):
        text = _with_head(review.stdout, base, head)
        whole = command if status else ["diff"]  # which says the same where nothing that was read fails
        document = json.loads(_etlrun(*whole, *words, "--format=json").stdout)
        outputs = {key: json.dumps(document[key], separators=(",", ":")) for key in _OUTPUTS}
        if status == _REFUSED:
            status, message = _of_policy(document["policy"] or {"faults": [], "broken": []})
    else:
        message += _unknown(given["BASE"])
        text = _with_head(f"{_HEADING}: `{base}` → `{head}`\n\n<pre>{html.escape(message)}</pre>\n", base, head)
        status = status or 1
    folder = _folder(given["RUNNER_TEMP"])
    for name, content in (("comment.md", text), ("name", given["NAME"]), ("number", given["NUMBER"])):
        (folder / name).write_text(content, encoding="utf-8")
    with Path(given["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
        summary.write(text)
    outputs |= {"folder": str(folder), "status": str(status), "message": escaped(message) if status else ""}
    with Path(given["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{key}={value}\n" for key, value in outputs.items())


def _of_policy(policy: dict[str, Any]) -> tuple[int, str]:
    """Return the status that a policy alone has, and its faults.

    A config that can't be composed fails the check, and must not hide a broken rule; one of the base breaks some.
    """
    faults = [*policy["faults"], *policy["broken"]]
    lines = (f"{fault['where']}: found {fault['found']}; expected {fault['expected']}" for fault in faults)
    return _BROKEN if policy["broken"] else _REFUSED if faults else 0, "\n".join(lines)[:_MOST_CHARACTERS]


def _labels(text: str) -> list[str]:
    try:
        found = json.loads(text or "[]")
    except ValueError:
        found = None
    if not isinstance(found, list):
        print(f"::error title=etlrun::labels: found {escaped(text)}; expected a JSON list of names")
        raise SystemExit(_REFUSED)
    return [str(label) for label in found]


def _etlrun(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etlrun", *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)


def _faults(errors: str) -> str:
    """Return the faults among what a command has written, without what TensorFlow logs before them."""
    return errors[max(errors.find("etlrun: "), 0) :][:_MOST_CHARACTERS]


def _short(revision: str) -> str:
    """Return the short SHA of a revision, or what was given, which `diff` refuses."""
    command = ["git", "rev-parse", "--verify", "--quiet", "--short", "--end-of-options", f"{revision}^{{commit}}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or revision


def _unknown(revision: str) -> str:
    """Return what git says of a revision that it doesn't know, and the likeliest remedy; empty if it knows it."""
    command = ["git", "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"]
    answer = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    return f"{answer.stderr}    -> check out with `fetch-depth: 2`\n" if answer.returncode else ""


def _with_head(review: str, base: str, head: str) -> str:
    """Return the review with a line on the pull request's head, where what was compared is its merge."""
    own = _short(os.environ["HEAD_SHA"] or "HEAD")
    heading, _, rest = review.partition("\n")
    return review if own == head else f"{heading}\n\n`{head}` is the head {own} merged into {base}.\n{rest}"


def _folder(parent: str) -> Path:
    """Return a new folder in `etlrun`, which a workflow may upload as an artifact."""
    (Path(parent) / "etlrun").mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=Path(parent) / "etlrun"))


if __name__ == "__main__":
    main()
