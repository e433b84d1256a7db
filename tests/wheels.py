"""Wheels that are built, and environments in which they are installed as a person installs them.

Such an environment has the packages of this one behind its own, so that none is installed again.
"""

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.conftest import Once

CHECKOUT = Path(__file__).parents[1]
_LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a wheel or an sdist from the source into `folder`; its file."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(words, cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def content(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by their names."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def wheel_of(once: Once) -> Path:
    """The wheel of this checkout, which is built once for all workers."""
    return next(once("wheel", lambda folder: build("wheel", CHECKOUT, folder)).glob("*.whl"))


class Environment:
    """A virtual environment in `folder`, whose `pip` and `pytest` are those of the environment of these tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def with_wheel(cls, folder: Path, wheel: Path) -> "Environment":
        """A new one, in which a wheel is installed, whatever this environment has of it."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "present.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
        own = shlex.quote(str(folder / "bin" / "python"))
        for name, line in (
            ("pip", f"{shlex.quote(sys.executable)} -m pip --python {own}"),
            ("pytest", f"{own} -m pytest"),
        ):
            script = folder / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
            script.chmod(0o755)
        new = cls(folder)
        new.check(f"pip install --no-deps --ignore-installed {shlex.quote(str(wheel))}", folder)
        return new

    def run(self, command: str, folder: Path, **variables: str) -> tuple[int, str, str]:
        """Run a line of a shell in `folder`; its exit status, and what it has printed on both streams."""
        others = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        path = f"{self.folder / 'bin'}{os.pathsep}{others['PATH']}"
        # pip reads the second one as --no-build-isolation.
        of_pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env={**others, **of_pip, "PATH": path, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def check(self, command: str, folder: Path, **variables: str) -> str:
        """Run a line that has to succeed; what it prints on standard output."""
        status, out, err = self.run(command, folder, **variables)
        assert status == 0, f"{command}\n{out}\n{err}"
        return out
