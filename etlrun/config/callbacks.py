"""Callbacks in Hydra's own config."""

from __future__ import annotations

import warnings
from typing import Any

from hydra.experimental.callback import Callback
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf


class Callbacks(Callback):  # type: ignore[misc]
    """All callbacks of a config as one, called for runs and jobs as Hydra calls them: one that fails is a warning."""

    def __init__(self, config: DictConfig) -> None:
        callbacks = OmegaConf.select(config, "hydra.callbacks") or {}
        self._all = [instantiate(callback) for callback in callbacks.values()]

    def on_run_start(self, config: DictConfig, **known: Any) -> None:
        """Call that of each callback."""
        self._call("on_run_start", config=config, **known)

    def on_job_start(self, config: DictConfig, **known: Any) -> None:
        """Call that of each callback."""
        self._call("on_job_start", config=config, **known)

    def on_job_end(self, config: DictConfig, **known: Any) -> None:
        """Call that of each callback."""
        self._call("on_job_end", config=config, **known)

    def _call(self, event: str, **known: Any) -> None:
        for callback in self._all:
            try:
                getattr(callback, event)(**known)
            except Exception as error:  # noqa: BLE001 - whatever a callback raises
                warnings.warn(f"Callback {type(callback).__name__}.{event} raised {error!r}", stacklevel=2)
