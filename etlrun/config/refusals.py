"""What Hydra and OmegaConf refuse, with the line of a file that it is about, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml
from hydra.errors import HydraException
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from etlrun.config.files import config_files
from etlrun.planning.hints import OF_EXPERIMENT, of_reference
from etlrun.planning.spec import GROUPS
from etlrun.stages import STAGES
from etlrun.system.errors import ConfigError, Fault, did_you_mean, one_line

UNCOMPOSABLE = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, RecursionError)
"""Exceptions that Hydra and OmegaConf raise for invalid files and for cycles."""
_WHERE = "config"
_NO_KEY = re.compile(r"Interpolation key '([^']+)' not found full_key: (\S+)")
_NO_OPTION = re.compile(r"Could not find '[^']*?([^'/]+)' Available options in '[^']+': (.*)")
_NO_GROUP = re.compile(r"Could not override '([^'@]+)(?:(@experiment\.)|'\. No match in the defaults list)")


def refusal(error: Exception) -> Fault:
    """Return the fault of a config that Hydra or OmegaConf rejected."""
    found = "a cycle in the defaults lists" if isinstance(error, RecursionError) else one_line(error)
    if isinstance(error, InterpolationKeyError) and (named := _NO_KEY.match(found)):
        key, where = named.groups()
        known = "a reference to a key of the config, such as ${trainer.epochs}"
        found = f"${{{key}}}, which the config does not have"
        return Fault(where=where, found=found, expected=known, remedy=of_reference(key, STAGES))
    found = found.split(" Config search path:")[0]
    return Fault(where=_WHERE, found=found, expected="a config that Hydra can compose", remedy=_remedy(found))


def _remedy(found: str) -> str:
    """Return what was probably meant in a defaults list; empty if nothing is close."""
    if option := _NO_OPTION.search(found):
        return did_you_mean(option[1], option[2].split())
    group = _NO_GROUP.search(found)
    if group is None:
        return ""
    return OF_EXPERIMENT if group[2] else did_you_mean(group[1], GROUPS)


def in_folder(fault: Fault, folder: str | None, words: Iterable[str]) -> Fault:
    """Return `in_file` of a fault for the files of a folder of own configs; the fault itself without one."""
    if fault.where != _WHERE or folder is None:
        return fault
    try:
        texts = {str(path): path.read_text(encoding="utf-8", errors="replace") for path in config_files(Path(folder))}
    except (OSError, ConfigError):  # a fault of another kind
        return fault
    return in_file(fault, texts, list(words))


def in_file(fault: Fault, texts: Mapping[str, str], words: Sequence[str]) -> Fault:
    """Return a fault without a key with the file and the line that contain its name, if there is one.

    Of files, whose texts are given by their names, those that `words` choose, as by `experiment=own`, come first.
    """
    if fault.where != _WHERE:
        return fault
    teller = re.match(r"In '([^']+)': ", fault.found)
    found = fault.found[teller.end() if teller else 0 :]
    asked = re.search(r"'([^'@]+)", found)
    if asked and any(re.split("[=@]", word.lstrip("+~"))[0] == asked[1] for word in words):
        return fault  # of the command line
    first = [f"{word.replace('=', '/')}.yaml" for word in words] + ([f"{teller[1]}.yaml"] if teller else [])
    pattern = ".*".join(rf"\b{re.escape(part)}\b" for part in asked[1].split("/")) if asked else "(?!)"
    for file in sorted(texts, key=lambda file: not any(file.endswith(f"/{name}") for name in first)):
        for number, line in enumerate(texts[file].splitlines(), 1):
            if re.search(pattern, line.partition("#")[0]):
                return replace(fault, where="", file=file, line=number, found=found)
    return fault
