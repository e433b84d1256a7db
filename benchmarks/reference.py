"""References in docs: pages of the keys of configs and of the command line, and the schema of `summary.json`.

python -m benchmarks.reference
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from etlrun.cli.commands import COMMANDS, Argument, Command
from etlrun.cli.parsers import concepts
from etlrun.config.folders import config_dir, options_of
from etlrun.config.reference import Key, keys, merged, options, stages_of
from etlrun.planning.hints import summary_of
from etlrun.record.summary import Summary
from etlrun.stages import STAGES, Stages

DOCS = Path(__file__).parents[1] / "docs"
_KEYS = """\
# Keys of configs

<!-- python -m benchmarks.reference -->

All keys of a config by group, as they are set on a command line (`etlrun cache=disk load.batch_size=64`) or in a file:
each with its default, with what another value changes, its meaning, and *the values that it takes*. It changes

- `data`: the examples, or their content;
- `training`: the model, or its training, by more than another seed would change it;
- `order`: the order of the examples, or their batches;
- `speed`: how fast it is, or which files are kept, and never a result.

`etlrun help KEY` prints the same, and [`etlrun config schema`](../plans.md) gives it to an editor."""
_STEPS = {
    "transform": """\
### Steps of images

`transform.steps` and `transform.eval_steps` list these by name, `[decode, resize]`. Keys change the data, unless said
otherwise.""",
    "columns": """\
### Steps of columns

`transform.columns.NAME.steps` lists these with their keys, `[{fill: {value: mean}}, standardize]`, which change the
data.""",
}
_EXPERIMENTS = """\
## experiment

Whole configs, which set keys of several groups: `etlrun experiment=own dataset.dir=PATH`."""
_COMMANDS = """\
# Command line

<!-- python -m benchmarks.reference -->

`etlrun [OVERRIDE ...]` trains, and `etlrun -m KEY=A,B` runs a sweep: [overrides](#overrides-values-on-the-command-line)
choose and change the config. Anything else is a command. RUN is the folder of a run, such as
`outputs/2026-11-27/01-44-43-857061`. `etlrun COMMAND --help` describes a command, `etlrun help TOPIC` what stands on
this page and on that of the [keys of configs](stages.md).

Commands with `--json` in their help print JSON by it. A command with `[OVERRIDE ...]` takes"""
_PAGES = {
    "caches": "../caches.md",
    "kinds": "stages.md",
    "resume": "../how_to/resume.md",
    "sweeps": "../sweeps.md",
    "verdict": "../verdict.md",
}
"""Concepts that have a page of their own."""
_OF_CONFIGS = [of for of in COMMANDS["plan"].whole if of.form in {each.form for each in COMMANDS["tune"].whole}]
"""Arguments of each command that takes overrides."""


def page_of_keys(stages: Stages) -> str:
    """Return the page of all keys: of each group its options, the keys of all of them, and those of some."""
    found, abouts = merged(keys(stages)), options(stages)
    parts = [_KEYS]
    for first in (key for key in found if "." not in key.path):
        group, of_options = first.path, stages_of(first.path, stages)
        own = {key: of for key, of in found.items() if key.path.startswith(f"{group}.") and _is_set(key)}
        shared = [_item(key, of[""]) for key, of in own.items() if "" in of]
        chosen = _chosen_by(group, abouts)
        parts += [f"## {group}", first.meaning, *([chosen] if "\n" in chosen else [])]
        parts += ["With each of them:" if "\n" in chosen else "", "\n".join(shared)] if shared else []
        for kind, text in _STEPS.items() if group == "transform" else ():
            steps = [option for option in of_options if option.startswith(f"{kind}.")]
            parts += [text, "\n".join(_of_step(step, summary_of(of_options[step][1]), own) for step in steps)]
        if group != "transform":
            parts += [part for option, of in of_options.items() for part in _of_option(option, summary_of(of[1]), own)]
    return "\n\n".join(filter(None, [*parts, _EXPERIMENTS, _chosen_by("experiment", abouts)])) + "\n"


def _chosen_by(group: str, abouts: dict[str, str]) -> str:
    """Return the options of a group as a list, each with what it is."""
    names = options_of(config_dir())[group]
    linked = [re.sub(r"docs/(\w+\.md)", r"[\1](../\1)", abouts[f"{group}.{name}"]) for name in names]
    return "\n".join(f"- `{group}={name}`: {about}" for name, about in zip(names, linked, strict=True))


def _of_option(option: str, about: str, of_group: Mapping[Key, Mapping[str, str]]) -> Iterator[str]:
    """Yield what is said of the keys of an option, if it has any: a key of several stands with the first of them."""
    group, _, name = option.partition(".")
    own = {key: of[option] for key, of in of_group.items() if option in of}
    if not (name and own):
        return
    yield f"### {option}"
    yield _escaped(about) if name not in options_of(config_dir())[group] else ""
    items, earlier = list[str](), dict[str, list[str]]()
    for key, default in own.items():
        first, of_first = next(iter(of_group[key].items()))
        differs = f" (here `{default}`)" if default != of_first else ""
        if first == option:
            items.append(_item(key, default))
        else:
            earlier.setdefault(first, []).append(f"`{key.path.removeprefix(f'{group}.')}`{differs}")
    told = [f"those of [{first}](#{first.replace('.', '')}): {', '.join(of)}" for first, of in earlier.items()]
    yield "\n".join([*items, *(f"- {text}" for text in told)])


def _of_step(step: str, about: str, of_group: Mapping[Key, Mapping[str, str]]) -> str:
    """Return what a step is, and its keys, as items of a list."""
    items = []
    for key, of in of_group.items():
        kinds = key.kinds if key.kinds != ("data",) else ()
        short = dataclasses.replace(key, path=key.path.rpartition("[].")[2], kinds=kinds)
        items += [f"    {_item(short, of[step])}"] if step in of else []
    return "\n".join([f"- **`{step.partition('.')[2]}`**: {_escaped(about)}", *items])


def _is_set(key: Key) -> bool:
    """Return whether a config may set a key; planning finds the others."""
    return re.match("null(, since|$)", key.values) is None


def _item(key: Key, default: str) -> str:
    """Return a key as an item of a list."""
    told = ", ".join([*(() if default else ("required",)), *key.kinds])
    said = {"true", "false", "null", "a string", "a mapping", *re.findall("`([^`]+)`", key.meaning)}
    is_said = {*re.split(",? or |, ", key.values)} <= said
    values = "" if is_said else f" *{_escaped(key.values)}*"
    path = f"{key.path}: {default}" if default and key.values != "a mapping" else key.path
    return f"- `{path}`{told and f' ({told})'}: {_escaped(key.meaning)}{values}"


def _escaped(text: str) -> str:
    """Return a text with what Markdown would read as its own escaped outside of code."""
    return re.sub(r"(`[^`]*`)|([*<|])", lambda found: found[1] or f"\\{found[2]}", text)


def page_of_commands() -> str:
    """Return the page of the command line: commands, those of every week first, and concepts."""
    parts = [_COMMANDS, "\n".join(map(_argument, _OF_CONFIGS))]
    for name, command in COMMANDS.items():
        parts += _described(name, command, "##")
    parts += ["## Answers to programs", _ANSWERS, "\n".join(_answers())]
    told = [text for name, text in concepts().items() if name not in _PAGES]
    others = ", ".join(f"[{name}]({page})" for name, page in _PAGES.items())
    parts += ["## Concepts", f"`etlrun help` has these, too: {others}.", *(f"### {text.rstrip()}" for text in told)]
    return "\n\n".join(parts) + "\n"


def _answers() -> Iterator[str]:
    """Yield the rows of the table of all commands: keys of their JSON, and exit statuses of their own."""
    yield from ("| command | keys of its JSON | exit statuses of its own |", "| --- | --- | --- |")
    for name, names, exits in _RUNS:
        yield f"| `{name}` | {names} | {exits} |"
    for name, command in COMMANDS.items():
        for part, of in (command.parts or {"": command}).items():
            words = " ".join(filter(None, ["etlrun", name, part]))
            yield f"| `{words}` | {of.json or _KEYS_OF[of.answers]} | {of.exits} |"


def _described(name: str, command: Command, heading: str) -> Iterator[str]:
    yield from (f"{heading} {name}", command.description)
    for part, of in command.parts.items():
        yield from _described(f"{name} {part}", of, f"{heading}#")
    if command.parts:
        return
    named, values = [[of for of in command.whole if (of.form[0] == "-") is is_named] for is_named in (True, False)]
    needed = [of.form for of in named if "required" in of.options]
    usage = [*needed, *["[OPTION ...]"] * (len(named) > len(needed)), *(of.form.partition(" ")[2] for of in values)]
    yield f"    etlrun {' '.join([name, *usage])}".rstrip() + f"\n    {command.example}"
    of_diff = COMMANDS["diff"].arguments.items() < command.arguments.items()
    told = {of.form for of in (COMMANDS["diff"].whole if of_diff else _OF_CONFIGS if command.takes_overrides else [])}
    own = [_argument(of) for of in [*values, *named] if of.form not in told]
    yield from filter(None, ["\n".join([*["- those of [diff](#diff)"] * of_diff, *own])])


def _argument(of: Argument) -> str:
    """Return an argument as an item of a list."""
    return f"- `{of.options.get('metavar', of.form) if of.form[0] != '-' else of.form}`: {of.says}"


_ANSWERS = """\
With `--json` a command prints one JSON document on standard output, and so do a run and a sweep. All have
the exit statuses 0 (done), 1 (failed), 2 (refused) and 130 (interrupted), [see below](#exit-statuses). One that is
refused, or fails before it has an answer, prints

    {"status": "failed", "exit_status": 2, "error": "...", "faults": [{"where": ..., "file": ..., "line": ...,
      "found": ..., "expected": ..., "remedy": ..., "configs": [...], "overrides": [["KEY=VALUE"]], "command": ...,
      "decide": false}]}

`overrides` are alternatives that end the fault, the best first: `~KEY` removes a key. `command` is the command line
that was meant. `decide` is true where a person chooses: alternatives change the data or the training, or none is known.
`findings` of the doctor, `policy.broken` of a review and `decision` of a sweep have it, too."""
_KEYS_OF = {"document": "those of its table, or of its lines", "text": "none: a text"}
_RUNS = (
    (
        "etlrun",
        "folder, result, and those of [summary.json](../run_folder.md), with `faults`",
        "3: slower than `measure.au_min`",
    ),
    (
        "etlrun -m",
        "status, folder, decision, configs, unfit, runs, fills, noise, remarks",
        "1: a job failed; 3: a job was slower than `measure.au_min`",
    ),
)
_RAW = "https://raw.githubusercontent.com/etlrun/etlrun/main/docs"
_NO_TEXT = re.compile(r"```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)


def pages_for_models() -> str:
    """Return `llms.txt`, the pages of the site by kind with the first sentence of each, as llmstxt.org describes it."""
    site = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"))
    parts = [f"# {site['site_name']}", f"> {site['site_description']}"]
    for kind, listed in (item for of in site["nav"] for item in of.items()):
        parts += [f"## {kind}", "\n".join(_lines_of(listed))]
    return "\n\n".join(parts) + "\n"


def _lines_of(listed: list[dict[str, Any]]) -> Iterator[str]:
    for title, page in (item for of in listed for item in of.items()):
        if isinstance(page, list):
            yield from _lines_of(page)
            continue
        blocks = re.split(r"\n\s*\n", _NO_TEXT.sub("", (DOCS / page).read_text(encoding="utf-8")))
        text = next(block for block in blocks if re.match(r"\n?[\w`\[*]", block))
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
        yield f"- [{title}]({_RAW}/{page}): {re.sub(':$', '.', re.split(r'(?<=[.:?]) ', text)[0])}"


if __name__ == "__main__":
    schema = json.dumps(Summary.model_json_schema(), indent=2) + "\n"
    texts = {"reference/stages.md": page_of_keys(STAGES), "reference/commands.md": page_of_commands()}
    for name, text in {**texts, "summary.schema.json": schema, "llms.txt": pages_for_models()}.items():
        (DOCS / name).write_text(text, encoding="utf-8")
