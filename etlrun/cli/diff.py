"""`etlrun diff`: the effect of a change in YAML."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cli import parsers
from etlrun.report.render import RENDER, show
from etlrun.review.document import comment, groups, of_review
from etlrun.review.policy import FORBIDDEN, Judgement, PolicyError
from etlrun.review.review import Images, Review, Reviewed, contradictions, judged, review
from etlrun.stages.base import DATA
from etlrun.sweep.sides import sides_of
from etlrun.system.errors import ConfigError, EtlrunError, WorldError
from etlrun.system.files import refuse_unwritable
from etlrun.system.terminal import say_whole

if TYPE_CHECKING:
    from etlrun.datasets.examine.show import Sheet
    from etlrun.planning.plan import Plan
    from etlrun.review.sides import Side

_DIFFERS, _REFUSED = 1, ConfigError.status
_EXAMPLES = 4
"""Examples of which images before and after are written."""


def main(arguments: list[str]) -> None:
    """Run `etlrun diff OLD [NEW]`.

    Status 2 if a plan can't be compared, 4 if a policy is broken, and 1 for a difference with `--exit-code`.
    """
    compare(parser().parse_intermixed_args(arguments))


def compare(
    known: argparse.Namespace, examined: Callable[[Review, Side, Side], Review] = lambda review, *_: review
) -> None:
    """Print the comparison that `known` asks for, with what `examined` adds to it; see `main` for the status.

    Raises:
        EtlrunError: A policy is broken, as the text says where that is printed, or what was read contradicts the
            comparison.
    """
    old, new, experiment = sides_of(known.old, known.new, known.experiment, known.config_dir)
    found = review(old, new, experiment)
    found = examined(found, old, new)
    if known.show is not None:
        found = _with_images(found, known.show, (old, new))
    labels = {name.strip() for names in known.label for name in names.split(",")}
    found = judged(found, (old, new), known.fail_on, labels)
    is_told, doc = known.stat or known.format == "text", of_review(found, is_short=known.stat)
    if is_told:
        show(doc)
    else:
        say_whole({"markdown": comment, "json": RENDER["json"]}[known.format](doc))
    if found.is_faulty:
        raise SystemExit(_REFUSED)
    policy = found.policy or Judgement()
    if policy.faults:
        raise SystemExit(_REFUSED) if is_told else ConfigError(policy.faults)
    if denied := contradictions(found):
        raise EtlrunError(denied)
    if policy.broken:
        raise SystemExit(PolicyError.status) if is_told else PolicyError(policy.broken)
    if known.exit_code and found.changes:
        raise SystemExit(_DIFFERS)


def _forbidden(text: str) -> list[str]:
    """Return what a change must not do, separated by commas."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in FORBIDDEN]:
        raise argparse.ArgumentTypeError(f"found {unknown[0]!r}; expected some of {', '.join(FORBIDDEN)}")
    return names


def _folder(text: str) -> Path:
    """Return a path; refuse what is rather a side of the comparison."""
    if "=" in text and not Path(text).exists():
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a folder, after the two sides: OLD NEW --show DIR")
    return Path(text)


def _with_images(found: Review, folder: Path, sides: tuple[Side, Side]) -> Review:
    """Write the examples before and after each change of the data to `folder`, once for experiments that are alike."""
    firsts = {names[0] for names, _ in groups(found)}
    chosen = [of for of in found.experiments if of.name in firsts and of.comparison.changes_data]
    if not chosen:
        return found
    refuse_unwritable(folder, "--show")
    images = {reviewed.name: _images(reviewed, folder, sides) for reviewed in chosen}
    experiments = [replace(of, images=images[of.name]) if of.name in images else of for of in found.experiments]
    return replace(found, experiments=tuple(experiments))


def _images(reviewed: Reviewed, folder: Path, sides: tuple[Side, Side]) -> Images:
    from etlrun.cli.show import write
    from etlrun.datasets.examine.compare import compared

    changes = [of for of in reviewed.comparison.differences if of.kind == DATA]
    pipeline = "validation" if all(of.pipelines == ("validation",) for of in changes) else "train"
    plans = [plan for plan in (reviewed.old, reviewed.new) if plan is not None]
    try:
        sheet = compared(*(side.call(_read, plan, pipeline) for side, plan in zip(sides, plans, strict=True)))
    except WorldError as error:
        return Images(text=f"none, since {error.faults[0].place}: found {error.faults[0].found}")
    if not sheet.columns:
        return Images(text=f"none, since the first {len(sheet.rows)} examples of {pipeline} do not differ")
    page = folder / f"{reviewed.name.replace('/', '-') or 'diff'}.html"
    made_by = ", ".join(f"{of.path} {of.change}" for of in changes)
    write(sheet, page, page.with_suffix(".png"), made_by, ("--show", "--show"))
    text = f"{len(sheet.rows)} examples of {pipeline} before and after"
    return Images(text=text, page=page.as_posix(), image=page.with_suffix(".png").as_posix())


def _read(plan: Plan, pipeline: str) -> Sheet:
    from etlrun.datasets.examine.compare import first_examples
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the configs have been validated

    with prepare(None):
        return first_examples(plan, pipeline, _EXAMPLES)


def parser(name: str = "diff", also: str = "") -> argparse.ArgumentParser:
    """Return the parser of `diff`, or of another command that `also` does what a sentence says."""
    parser = parsers.of_command(
        name,
        "Compare two configs, and report whether the difference changes the data, the order, the training, "
        f"or only the speed.{also} OLD and NEW are quoted overrides, a config file, the folder of a run or of a sweep, "
        "or a git revision.",
    )
    parser.add_argument(
        "old",
        metavar="OLD",
        help="quoted overrides, a config file, the folder of a run or of a sweep, or a git revision",
    )
    others = "the configs of the working tree; of a run or a sweep, those that its overrides compose now"
    parser.add_argument("new", metavar="NEW", nargs="?", help=f"the same; default: {others}")
    of_revisions = "compare only this experiment of the revisions; default beside a run: its own"
    parser.add_argument("--experiment", metavar="NAME", help=of_revisions)
    parsers.add_config_dir(parser, "folder of your configs, compared instead of the project's")
    forms = parser.add_mutually_exclusive_group()
    parsers.add_format(forms, "text", "markdown", "json")
    forms.add_argument("--stat", action="store_true", help="print a line for each experiment that changes, and sums")
    parser.add_argument("--exit-code", action="store_true", help="exit with status 1 if a plan differs")
    fail_on = f"exit with status 4 for changes of these kinds, or for such experiments: {','.join(FORBIDDEN)}"
    parser.add_argument("--fail-on", action="extend", type=_forbidden, default=[], metavar="KIND[,KIND]", help=fail_on)
    label = "label of the change, which may waive rules of etlrun-policy.yaml"
    parser.add_argument("--label", action="append", default=[], metavar="NAME", help=label)
    parser.add_argument("--show", type=_folder, metavar="DIR", help="folder for images of examples whose data differ")
    return parser
