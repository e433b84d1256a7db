"""Text of `etlrun --help` and `etlrun --version`."""

from __future__ import annotations

import platform
from importlib import metadata

from etlrun.cli.commands import COMMANDS
from etlrun.config.folders import config_dir, options_of

_HEAD = """\
usage: etlrun [COMMAND] [OVERRIDE ...]

Train a Keras model on a tf.data pipeline, both described by a reviewed YAML config. Without a command, etlrun trains.

examples:
  etlrun                                           train on the built-in dataset, in a minute
  etlrun experiment=own dataset.dir=photos         train on own images: a folder with a folder for each class
  etlrun plan cache=disk load.batch_size=64        print the plan of a run, without running it
  etlrun -m cache=none,memory load.prefetch=0,2    run every combination, and compare them
  etlrun trainer.resume=RUN                        resume an interrupted run, RUN being its folder in outputs/
  etlrun evaluate RUN                              evaluate a trained model
  etlrun predict RUN photo.jpg                     predict images with it
  etlrun export RUN --format onnx                  export it for another runtime
"""
_TAIL = """\
options:
  -m, --multirun       run every combination of overrides KEY=A,B; etlrun -m sweep.resume=FOLDER resumes a sweep
  --config-dir DIR     folder of own configs; --config-name NAME: its primary config, instead of `config`
  --cfg job            print the composed config; --info and --hydra-help: more of Hydra's own options
  -sc install=SHELL    print the completion for bash, zsh or fish: eval "$(etlrun -sc install=bash)"
  --version, --help    print versions, or this text; etlrun COMMAND --help describes a command"""
_PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "hydra-core")


def text() -> str:
    """Return the help: examples, commands, groups with their options, and options."""
    names = [f"{name} {command.takes}".rstrip() for name, command in COMMANDS.items()]
    width = max(map(len, names))
    rows = [f"  {name:{width}}  {command.summary}" for name, command in zip(names, COMMANDS.values(), strict=True)]
    groups = options_of(config_dir())
    options = [f"  {group:{max(map(len, groups))}}  {', '.join(names)}" for group, names in groups.items()]
    title = "overrides GROUP=OPTION, with these options, and GROUP.KEY=VALUE (etlrun plan prints all keys and values):"
    return "\n".join([_HEAD, "commands:", *rows, "", title, *options, "", _TAIL])


def version() -> str:
    """Return the version of etlrun, and those of what it stands on."""
    others = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    return f"etlrun {metadata.version('etlrun')} (Python {platform.python_version()}, {', '.join(others)})"
