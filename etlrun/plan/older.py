"""Configs of older versions: those frozen in folders of runs, and those of older git revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of_today(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a config with the keys of this version, if they can mean the same."""
    trainer, model = config.get("trainer"), config.get("model")
    if isinstance(trainer, Mapping) and trainer.get("tensorboard") is False:
        config = {**config, "trainer": {key: value for key, value in trainer.items() if key != "tensorboard"}}
    if isinstance(model, Mapping) and model.get("name") == "keras_application" and "application" in model:
        others = {key: value for key, value in model.items() if key not in ("name", "application")}
        config = {**config, "model": {"name": model["application"], **others}}
    return config if "logger" in config else {**config, "logger": {"name": "none"}}
