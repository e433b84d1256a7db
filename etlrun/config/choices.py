"""Defaults lists of configs that differ from the primary one in options alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import DefaultsList
from hydra.core.default_element import ConfigDefault, InputDefault, ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType


class Choices:
    """A primary config in whose defaults list options can be replaced, which is much quicker than a new list."""

    def __init__(self, files: ConfigRepository, parser: OverridesParser, primary: DefaultsList) -> None:
        self._files, self._parser, self._primary = files, parser, primary
        lists = [files.load_config(default.config_path).defaults_list or [] for default in primary.defaults]
        self._takes_hydra = any(map(_names_others, (of for listed in lists for of in listed if not of.is_self())))
        self._places = {str(of.override_key): place for place, of in enumerate(primary.defaults) if of.override_key}
        self._options: dict[str, tuple[int, ResultDefault] | None] = {}

    def defaults(self, overrides: Sequence[str]) -> list[ResultDefault] | None:
        """Return the defaults of a config; None if it takes Hydra to tell.

        That is so if an override is not the choice of an option, or if files name others: in a defaults list of their
        own, or by references to choices.
        """
        chosen = [self._option(word) for word in overrides]
        found = [one for one in chosen if one is not None]
        if self._takes_hydra or len({place for place, _ in found}) < len(overrides):
            return None
        defaults = list(self._primary.defaults)
        for place, default in found:
            defaults[place] = default
        return defaults

    def _option(self, word: str) -> tuple[int, ResultDefault] | None:
        """Return the place of an option in the defaults, and what stands there if it is chosen."""
        if word not in self._options:
            (override,) = self._parser.parse_overrides([word])
            self._options[word] = self._replaced(override)
        return self._options[word]

    def _replaced(self, override: Override) -> tuple[int, ResultDefault] | None:
        group, value = override.key_or_group, override.value()
        if override.type != OverrideType.CHANGE or override.package is not None or not isinstance(value, str):
            return None
        if group not in self._places:
            return None
        old = self._primary.defaults[self._places[group]]
        before, after = self._files.load_config(old.config_path), self._files.load_config(f"{group}/{value}")
        if not old.config_path.startswith(f"{group}/") or not (_is_alone(before) and _is_alone(after)):
            return None
        if before.header != after.header:
            return None
        return self._places[group], replace(old, config_path=f"{group}/{value}")


def _is_alone(loaded: Any) -> bool:
    return loaded is not None and not loaded.defaults_list


def _names_others(default: InputDefault) -> bool:
    """Return whether an entry of a defaults list names a whole config, or refers to a choice."""
    return isinstance(default, ConfigDefault) or bool(default.is_interpolation())
