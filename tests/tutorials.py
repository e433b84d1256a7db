"""The pages of docs/tutorials and docs/how_to, played: their files are written, and their commands run, in order.

A fence in `bash` is run, one without a language is what the fence before it has printed, and one whose first line is
a comment with the name of a file is that file. `python -m tests.tutorials [PAGE ...]` puts what the commands print now
into the pages; lines that are gone stay, and are named.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from etlrun.record.folders import SWEEP
from tests.conftest import SHARED
from tests.pastes import LEFT_OUT, ROOT, Paste, lacking, shapes
from tests.slurm import cluster

PAGES = sorted(path for folder in ("tutorials", "how_to") for path in (ROOT / "docs" / folder).glob("*.md"))
LIMIT_S = 1800
SETTLED = {"gpu_waits": "etlrun model=emulated model.step_ms=400 model.eval_step_ms=50 trainer.epochs=2 cache=memory"}
"""Runs whose verdict is sure; that of the last one of the page depends on what else the machine does."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?:# @package _global_\n)?# ([\w./-]+\.\w+)(?::.*)?\n")
_INSTALLS = re.compile(r"(pip install|python -m venv|sudo) .*")
_PROGRESS = re.compile(
    r"(device  |data  \S|epoch \d+/\d+ |preparing |~/tensorflow_datasets/\S+$|Generating|Shuffling|Downloading and"
    r"|Dataset etlrun|.*\[A|bash: line ).*"
)
"""Lines on standard error that a page does without."""
_LEFT_BEHIND = ("TFDS", "XDG", "ETLRUN", "GIT", "KERAS", "TF_", "AWS")
_GIT = "[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n[commit]\ngpgsign = false\n"


@dataclass(frozen=True)
class Block:
    """A fence of a page: its language, empty for an output; its first line; the name of its file, or empty."""

    language: str
    text: str
    line: int
    name: str


@dataclass(frozen=True)
class Played:
    """An output as a page has it, as it is now, and what the commands might have said as well; see `lacking`."""

    paste: Paste
    real: str
    others: Sequence[str] = ()


def blocks(page: Path) -> Iterator[Block]:
    """All fences of a page."""
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        name = _NAME.match(fence[2])
        line = text.count("\n", 0, fence.start()) + 2
        yield Block(fence[1], fence[2], line, name[1] if name and fence[1] not in ("", "bash") else "")


def environment(home: Path) -> dict[str, str]:
    """Of a reader who has just installed etlrun: a home with a name for git, and weights that Keras would download."""
    home.mkdir(parents=True)
    if (SHARED / "weights").is_dir():
        shutil.copytree(SHARED / "weights", home / ".keras" / "models")
    (home / ".gitconfig").write_text(_GIT)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_LEFT_BEHIND)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**kept, "HOME": str(home), "KERAS_HOME": str(home / ".keras"), "PATH": path, "PYTHONPATH": str(ROOT)}


def lacks_weights(page: Path) -> bool:
    """Whether a page wants ImageNet's weights, and this machine has none."""
    return "imagenet" in page.read_text(encoding="utf-8").lower() and not (SHARED / "weights").is_dir()


def install(project: Path, site: Path) -> None:
    """Do as `pip install -e`, without an index of packages: tell Python where a project is, and its entry points."""
    about = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = site / f"{about['name']}-{about['version']}.dist-info"
    metadata.mkdir(parents=True)
    named = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (metadata / "METADATA").write_text(named, encoding="utf-8")
    points = about["entry-points"].items()
    sections = ("\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in of.items())]) for group, of in points)
    (metadata / "entry_points.txt").write_text("\n".join(sections), encoding="utf-8")


@contextmanager
def around(page: Path) -> Iterator[dict[str, str]]:
    """What a page presupposes: a store, a cluster. Gives what the environment has besides."""
    text = page.read_text(encoding="utf-8")
    if "submitit_slurm" in text:
        with cluster():
            yield {}
    elif "s3://" in text and page.parent.name == "how_to":
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        named = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "a", "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")).close()
        try:
            yield named
        finally:
            server.stop()
    else:
        yield {}


def write_photos(folder: Path) -> None:
    """Photos of two classes, ten of one for each of the other."""
    for number in range(55):
        path = folder / ("rose" if number % 11 == 10 else "daisy") / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (48, 64, 3), np.uint8)
        Image.fromarray(pixels).save(path)


def play(page: Path, folder: Path, *, is_compared: bool = True) -> list[Played]:
    """Do what a page says, in an empty folder below `folder`; how-to pages are for who has photos.

    Only what is to be compared needs what might have been said as well.
    """
    home, place = folder / "home", folder / "empty"
    place.mkdir(parents=True)
    if page.parent.name == "how_to":
        write_photos(place / "photos")
    with around(page) as besides:
        reader = Reader(home, place, {**environment(home), **besides})
        played = [*_played(page, reader)]
        if not is_compared:
            return played
        from tests.test_docs import also_said  # imports TensorFlow

        others = [also_said(path.parent) for path in (folder / "empty").rglob(SWEEP)]
        others += [reader.told(SETTLED[page.stem])] if page.stem in SETTLED else []
        return [replace(output, others=others) for output in played]


@dataclass
class Reader:
    """Who follows a page: home, working directory and environment."""

    home: Path
    place: Path
    surroundings: dict[str, str]

    def told(self, command: str) -> str:
        """What a command of a shell prints; it may change the folder, or install the project that is there."""
        where = self.home / "where"
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{command}\npwd > {where}"],
            cwd=self.place,
            env=self.surroundings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        said = done.stdout.replace(f"{self.place}/", "").replace(str(self.home), "~")
        assert not done.returncode, f"{command}: status {done.returncode}\n{said}"
        self.place = Path(where.read_text().strip())
        return said


def _played(page: Path, reader: Reader) -> Iterator[Played]:
    command = said = ""
    for block in blocks(page):
        if block.name:
            (reader.place / block.name).parent.mkdir(parents=True, exist_ok=True)
            (reader.place / block.name).write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            command = "\n".join(line for line in block.text.splitlines() if not _INSTALLS.fullmatch(line))
            said = reader.told(command)
            if "pip install -e" in block.text:
                install(reader.place, reader.home / "site")
                paths = (reader.place, reader.home / "site", ROOT)
                reader.surroundings["PYTHONPATH"] = os.pathsep.join(map(str, paths))
        elif not block.language:
            lines = [(block.line + at, line) for at, line in enumerate(block.text.splitlines()) if line.strip()]
            yield Played(Paste(page, command, tuple(lines)), said)


def faults(page: Path, folder: Path) -> list[str]:
    """Each pasted line of a page that its commands don't print."""
    return [line for output in play(page, folder) for line in lacking(output.paste, output.real, output.others)]


def renew(page: Path) -> None:
    """Put what the commands print into a page; of an output that leaves lines out the lines that are still there."""
    text = page.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        played = play(page, Path(folder), is_compared=False)
    for output in reversed(played):
        first, last = output.paste.lines[0][0], output.paste.lines[-1][0]
        said = "\n".join(line.rstrip() for line in output.real.splitlines() if not _PROGRESS.match(line))
        real = said.strip("\n").splitlines()
        if LEFT_OUT in text[first:last] or text[first - 1] == LEFT_OUT != text[last - 1]:
            known = {line.shape: line.text.rstrip() for line in shapes(enumerate(real))}
            real = [known.get(line.shape, line.text) for line in shapes(enumerate(text[first - 1 : last]))]
        text[first - 1 : last] = real
        print(*lacking(output.paste, output.real), sep="\n", end="")
    page.write_text("\n".join([*text, ""]), encoding="utf-8")


if __name__ == "__main__":
    for chosen in map(Path, sys.argv[1:]) if sys.argv[1:] else PAGES:
        renew(chosen.resolve())
