"""Fills of a cache that are killed with SIGKILL, and what a clean run makes of what they leave.

Some are killed at the seams of a fill, all others at random moments.

python -m benchmarks.kills [--kills N] [--output FILE]

Each turn kills a fill, then reads two passes in another process: both must have the digest of a pipeline without a
cache (with `cache.codec`, of one whose fill was not killed), and the second must read the cache. The cache of a turn is
removed before the next. Children are forked from a process that has imported TensorFlow and not used it, so that a turn
takes a second or two.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import etlrun.sweep.preload  # noqa: F401 - imported once, before any child is made
from etlrun.cache.parts import PartWriter
from etlrun.cache.store import CacheStore, Claim
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.graph.disk import keepers_of
from etlrun.measure.digest import Digest
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES


def read(words: Sequence[str], passes: int) -> dict[str, Any]:
    """The digests of some passes over the training pipeline of a config, and what its cache did."""
    plan = resolve(Request(overrides=list(words)), STAGES).plan
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    said: list[str] = []
    keeper = keepers_of(plan, contexts, {"folder": "-", "overrides": []}, said.append).get("train")
    if keeper is not None:
        keeper.prepare()
    pipeline, digest, digests = Pipeline(plan.train, contexts["train"], keeper), Digest(), []
    for _ in range(passes):
        for images, labels in pipeline.dataset:
            digest.add(images.numpy(), labels.numpy())
        digests.append(digest.taken())
    if keeper is not None:
        keeper.close()
    return {"digests": digests, "passes": keeper.passes if keeper else [], "said": said}


def child(work: Callable[[], object], output: Path) -> int:
    """Fork a process that does `work` and writes what it returns; its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        output.write_text(json.dumps(work()))
        status = 0
    except BaseException:  # noqa: BLE001 - a child never returns
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def finished(words: Sequence[str], passes: int, scratch: Path) -> dict[str, Any]:
    """What `read` returns, from a child of its own."""
    output = scratch / "child.json"
    pid = child(lambda: read(words, passes), output)
    _, status = os.waitpid(pid, 0)
    if status:
        message = f"a clean run ended with status {status}"
        raise RuntimeError(message)
    result: dict[str, Any] = json.loads(output.read_text())
    return result


SEAMS: dict[str, tuple[Any, str]] = {
    "at its first example": (PartWriter, "add"),
    "at its last example": (CacheStore, "publish"),
    "before it is renamed": (Path, "rename"),
    "after it is renamed": (Claim, "release"),
}
"""Of a fill, each with the function that the process does not survive."""


def read_until(seam: str, words: Sequence[str]) -> None:
    """Die there."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(*SEAMS[seam], die)
    read(words, 1)


def state_of(folder: Path) -> str:
    """What a killed fill has left."""
    if any(folder.glob("*/cache.json")) and not any(folder.glob("*.filling")):
        return "published"
    parts = [path for path in folder.glob("*.filling/*") if path.stat().st_size]
    return "partly filled" if parts else ("claimed" if any(folder.glob("*.filling")) else "nothing")


def kills(count: int, words: Sequence[str], scratch: Path) -> tuple[Counter[str], list[str]]:
    """How many of the killed fills had left what, and what was wrong after them."""
    folder, wrong, left = scratch / "kept", [], Counter[str]()
    cached = [*words, "cache=disk", f"cache.dir={folder}"]
    began = time.perf_counter()
    whole = finished(cached, 1, scratch)
    whole_s = time.perf_counter() - began
    has_codec = any(word.startswith("cache.codec=") for word in words)  # it changes pixels, so no uncached run has them
    wanted = (whole if has_codec else finished([*words, "cache=none"], 1, scratch))["digests"][0]
    for turn, seam in enumerate([*SEAMS, *[None] * count]):
        for path in folder.glob("*"):
            if path.is_dir():
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
        work = partial(read, cached, 1) if seam is None else partial(read_until, seam, cached)
        pid = child(work, scratch / "killed.json")
        if seam is None:
            time.sleep(random.uniform(0, 1.05 * whole_s))  # noqa: S311 - a moment, not a secret
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if seam is not None and status != signal.SIGKILL:
            wrong.append(f"turn {turn}: nothing killed it {seam}, status {status}")
        left[f"{state_of(folder)} ({seam or 'at random'})"] += 1
        after = finished(cached, 2, scratch)
        if after["digests"] != [wanted, wanted] or after["passes"][-1] != "read":
            wrong.append(f"turn {turn}: {after}")
    return left, wrong


def main() -> None:
    """Kill, print, and write the table where asked; status 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--output", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        left, wrong = kills(known.kills, known.overrides, Path(scratch))
    lines = ["| a killed fill had left | kills | wrong afterwards |", "|---|---|---|"]
    lines += [f"| {state} | {number} | |" for state, number in sorted(left.items())]
    lines += [f"| all | {sum(left.values())} | {len(wrong)} |", *wrong]
    text = "\n".join(lines) + "\n"
    print(text)
    if known.output:
        head = f"`python -m benchmarks.kills --kills {known.kills} {' '.join(known.overrides)}` on 2 cores"
        known.output.write_text(f"{head}\n\n{text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
