"""Starts runs with Hydra: one in this process, or each job of a multirun in a process of its own.

command line --hydra.main--> `job`, once for a run and once a job of a multirun
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from etlrun import report, run
from etlrun.compose import VERSION_BASE, config_dir, plain
from etlrun.errors import EtlrunError, describe


def launch() -> None:
    """Hand the command line to Hydra, which composes each job's config and calls `job` with it."""
    main: Callable[[], Any] = hydra.main(
        version_base=VERSION_BASE, config_path=str(config_dir()), config_name="config"
    )(job)
    main()


def job(config: DictConfig) -> None:
    """One run: in this process, or for a job of a multirun in a fresh one, from the config frozen in its folder."""
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir)
    own_configs = [source.path for source in settings.runtime.config_sources if source.provider == "command-line"]
    try:
        run.freeze(folder, plain(config), list(settings.overrides.task), own_configs[0] if own_configs else None)
    except EtlrunError as error:
        raise SystemExit(describe(error)) from None
    if settings.mode == RunMode.RUN:
        raise SystemExit(run.run(folder))
    # A session of its own: Ctrl-C reaches this process alone, which hands it on, once.
    process = subprocess.Popen([sys.executable, "-m", "etlrun.run", str(folder)], start_new_session=True)
    try:
        with run.terminated_as_interrupted():
            process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        run.settle(folder, process.wait())
        report.sweep(Path(settings.sweep.dir))
        raise SystemExit(run.INTERRUPTED) from None
    run.settle(folder, process.returncode)


class SweepTable(Callback):  # type: ignore[misc]
    """Ends a multirun with its table and an exit status that tells whether all jobs went well."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Print and write the table; status 1 where a job was not completed, 3 where one was below its pass mark."""
        statuses = report.sweep(Path(config.hydra.sweep.dir))
        if statuses:
            raise SystemExit(min(statuses))
