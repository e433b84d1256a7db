"""Hosts of a run: processes on loopback, each with the environment that a launcher gives it."""

from pathlib import Path

from tests.forked import Forked, forked_on_jax
from tests.service import free_port

SHARED = ("trainer.hosts=2", "load.drop_remainder=true", "trainer.jit_compile=auto")


def on_two_hosts(words: list[str], cwd: Path, *, other: list[str] | None = None) -> list[Forked]:
    """`etlrun` with `words` on host 0, and the same, or `other` words, on host 1."""
    address = f"127.0.0.1:{free_port()}"
    return [on_host(number, of_host, cwd, address) for number, of_host in enumerate((words, other or words))]


def on_host(number: int, words: list[str], cwd: Path, address: str) -> Forked:
    """`etlrun` with `words`, quick and on JAX, on the host of that number of two."""
    return forked_on_jax(
        words, cwd, JAX_COORDINATOR_ADDRESS=address, JAX_NUM_PROCESSES="2", JAX_PROCESS_ID=str(number), TMPDIR=str(cwd)
    )
