"""Swept keys of a sweep, the effects of their values, and the jobs that are left."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from etlrun.record.state import KILLED
from etlrun.record.summary import INTERRUPTED, RUNNING
from etlrun.results.results import ConfigResult, Effect, Run


def keys(overrides: Sequence[Sequence[str]]) -> list[str]:
    """Return the keys whose values differ between configs with these overrides, in the order of the command line."""
    by_config = [dict(override.partition("=")[::2] for override in of) for of in overrides]
    every = dict.fromkeys(key for of in by_config for key in of)
    return [key for key in every if len({of.get(key) for of in by_config}) > 1]


def values(overrides: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the value of each of the keys, empty where the overrides have none."""
    found = {key: value for key, _, value in (override.partition("=") for override in overrides)}
    return {key: found.get(key, "") for key in keys}


def effects(configs: Sequence[ConfigResult], keys: Sequence[str]) -> Iterator[Effect]:
    """Yield the effect of each value of each key, by key, the fastest first."""
    for key in keys:
        rates: dict[str, list[float]] = {}
        for config in configs:
            if config.examples_per_s is not None:
                rates.setdefault(config.swept[key], []).append(config.examples_per_s)
        for value, of in sorted(rates.items(), key=lambda item: -statistics.median(item[1])):
            yield Effect(key=key, value=value, configs=len(of), examples_per_s=statistics.median(of))


def frontier(configs: Sequence[ConfigResult]) -> tuple[int, ...]:
    """Return the configs that no other beats in throughput with as little memory; the fastest first."""
    found, least = [], float("inf")
    for config in sorted(configs, key=lambda config: -(config.examples_per_s or 0.0)):
        if config.peak_rss_bytes is not None and config.examples_per_s and config.peak_rss_bytes < least:
            found.append(config.number)
            least = config.peak_rss_bytes
    return tuple(found)


def notes_on_left(jobs: Sequence[Run], resume_command: str) -> Iterator[str]:
    """Yield that jobs have not begun or not come to their end, on which no decision can be based."""
    left = sum(job.outcome is None or job.outcome.status in (RUNNING, KILLED, INTERRUPTED) for job in jobs)
    if left:
        have = "has" if left == 1 else "have"
        yield f"{left} of {len(jobs)} jobs {have} not come to an end; those that are left run with: {resume_command}"
