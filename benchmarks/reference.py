"""References in docs: pages of the keys of configs and of the command line, and the schema of `summary.json`.

python -m benchmarks.reference
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from etlrun.cli import commands
from etlrun.cli.commands import COMMANDS, Command
from etlrun.cli.parsers import concepts
from etlrun.config.folders import config_dir, options_of
from etlrun.config.reference import Key, keys, options, stages_of
from etlrun.planning.hints import summary_of
from etlrun.record.summary import Summary
from etlrun.stages import STAGES, Stages

DOCS = Path(__file__).parents[1] / "docs"
_KEYS = """\
# Keys of configs

<!-- python -m benchmarks.reference -->

All keys of a config by group, as they are set on a command line (`etlrun cache=disk load.batch_size=64`) or in a file.
A default is what a run has if nothing else is said: it stands in the file of the option, or in the type of the stage.
A key that is *required* has none. *changes* says what another value can change:

- `data`: the examples, or their content;
- `training`: the model, or its training, by more than another seed would change it;
- `order`: the order of the examples, or their batches;
- `speed`: how fast it is, or which files are kept, and never a result;
- nothing: no run, such as a block whose keys follow, or a setting of sweeps.

`etlrun help KEY` prints a row in the terminal, and [`etlrun schema`](../plans.md) gives all of it to an editor."""
_EXPERIMENTS = """\
## experiment

Whole configs, which set keys of several groups: `etlrun experiment=own dataset.dir=PATH`."""
_COMMANDS = """\
# Command line

<!-- python -m benchmarks.reference -->

`etlrun [OVERRIDE ...]` trains, and `etlrun -m KEY=A,B` runs a sweep: [overrides](#overrides-values-on-the-command-line)
choose and change the config. Anything else is a command. RUN is the folder of a run, such as
`outputs/2026-11-27/01-44-43-857061`. `etlrun --help` lists the commands, `etlrun COMMAND --help` describes one, and
`etlrun help TOPIC` has what stands on this page and on that of the [keys of configs](stages.md)."""


def page_of_keys(stages: Stages) -> str:
    """Return the page of all keys: for each group its options, the keys of all of them, and a table for each stage."""
    found, abouts = list(keys(stages)), options(stages)
    parts = [_KEYS]
    for first in (key for key in found if "." not in key.path):
        group = first.path
        own = [key for key in found if key.path.startswith(f"{group}.")]
        parts += [
            f"## {group}",
            first.meaning,
            _chosen_by(group, abouts),
            _table([key for key in own if not key.option]),
        ]
        for option, (_, stage, _) in stages_of(group, stages).items():
            own_of_option = [key for key in own if key.option == option]
            parts += [f"### {option}", summary_of(stage), _table(own_of_option)] if option else []
    return "\n\n".join(filter(None, [*parts, _EXPERIMENTS, _chosen_by("experiment", abouts)])) + "\n"


def _chosen_by(group: str, abouts: dict[str, str]) -> str:
    """Return a table of the options of a group, each with what it is."""
    names = options_of(config_dir())[group]
    linked = [re.sub(r"docs/(\w+\.md)", r"[\1](../\1)", abouts[f"{group}.{name}"]) for name in names]
    rows = [f"| `{group}={name}` | {about} |" for name, about in zip(names, linked, strict=True)]
    return "\n".join(["| option | |", "| --- | --- |", *rows])


def _table(found: Sequence[Key]) -> str:
    """Return a table of keys; empty if there are none."""
    rows = [
        f"| `{key.path}` | {_cell(key.meaning)} | {_cell(key.values)} "
        f"| {f'`{key.default}`' if key.default else 'required'} | {', '.join(key.kinds) or 'nothing'} |"
        for key in found
    ]
    head = ["| key | meaning | values | default | changes |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else ""


def _cell(text: str) -> str:
    """Return a text for a cell of a table, with what Markdown would read as its own escaped outside of code."""
    return re.sub(r"(`[^`]*`)|([*<|])", lambda found: found[1] or f"\\{found[2]}", text)


def page_of_commands() -> str:
    """Return the page of the command line: commands by what they are for, and concepts."""
    parts = [_COMMANDS]
    for heading, modules in commands.GROUPS.items():
        parts += [f"## {heading.capitalize()}"]
        for name, command in COMMANDS.items():
            parts += _described(name, command, "###") if command.module in modules else ()
    parts += ["## Concepts", *(f"### {text.rstrip()}" for text in concepts().values())]
    return "\n\n".join(parts) + "\n"


def _described(name: str, command: Command, heading: str) -> Iterator[str]:
    yield from (f"{heading} {name}", command.description)
    for part, of in command.parts.items():
        yield from _described(f"{name} {part}", of, f"{heading}#")
    if command.parts:
        return
    named, values = [[of for of in command.whole if (of.form[0] == "-") is is_named] for is_named in (True, False)]
    needed = [of.form for of in named if "required" in of.options]
    usage = [*needed, *["[OPTION ...]"] * (len(named) > len(needed)), *(of.form.partition(" ")[2] for of in values)]
    yield f"    etlrun {' '.join([name, *usage])}".rstrip()
    rows = [(of.options.get("metavar", of.form), of.says) for of in values] + [(of.form, of.says) for of in named]
    table = ["| `{}` | {} |".format(form.replace("|", "\\|"), says) for form, says in rows]
    yield from ["\n".join(["| argument | meaning |", "| --- | --- |", *table])] if rows else []
    yield f"Example:\n\n    {command.example}"


if __name__ == "__main__":
    schema = json.dumps(Summary.model_json_schema(), indent=2) + "\n"
    texts = {"reference/stages.md": page_of_keys(STAGES), "reference/commands.md": page_of_commands()}
    for name, text in {**texts, "summary.schema.json": schema}.items():
        (DOCS / name).write_text(text, encoding="utf-8")
