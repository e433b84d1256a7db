"""`etlrun tune`: the fastest config that sees the same data, with its proof, for a review."""

import dataclasses
import json
import signal
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from etlrun.config import grid
from etlrun.config.folders import config_dir
from etlrun.config.grid import Job
from etlrun.config.request import composer, with_hydra
from etlrun.record.record import PAGE, RESULTS, held, unwritable
from etlrun.stages import STAGES
from etlrun.stages.sweep import Tune
from etlrun.sweep.tune import SEARCH, WINDOWS
from etlrun.system.errors import INTERRUPTED, WorldError
from etlrun.system.files import refuse_unwritable, write_atomically
from etlrun.system.terminal import say, say_whole, tell


def tune(known: Namespace) -> None:
    """Search for the fastest config; status 0 whatever it found, 130 if interrupted; `EtlrunError` if none runs."""
    request = known.request
    settings, job = grid.tuned(request, STAGES)
    job.plan.spec.cluster.require_one_host("a search measures the input of one host")
    target = None if known.write is None else _target(known.write)
    folder = Path(str(with_hydra(composer(request), request.overrides).hydra.run.dir))
    searching = (f"{Tune.path}.", f"{Tune.path}=", "hydra")
    own = [word for word in request.overrides if not word.lstrip("+").startswith(searching)]
    if (folder / SEARCH).exists():
        raise WorldError(str(folder), "a search", "a new folder for each search", "choose another hydra.run.dir")
    with held(folder):
        asked = {"overrides": own, "config": job.config, "tune": asdict(settings), "files": request.files}
        try:
            write_atomically(folder / SEARCH, json.dumps(asked, indent=2, default=str) + "\n")
        except OSError as error:
            raise unwritable(folder, error) from error
        _search(folder, dataclasses.replace(job, overrides=own), settings, request.files, target)


def _search(folder: Path, job: Job, settings: Tune, files: list[str], target: Path | None) -> None:
    from etlrun.report.render import RENDER, show
    from etlrun.sweep.tune import predict
    from etlrun.sweep.tune.report import of_search, overlay
    from etlrun.sweep.tune.search import FOUND, Search
    from etlrun.sweep.tune.space import Windows

    search = Search(job, settings, Windows(folder / WINDOWS, job.overrides), tell)
    tell(f"tune    {len(search.space):,} configs, {settings.budget_s:g} s of measuring, in {folder}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        predict.prepare(job.plan.spec.dataset)
        search.run()
    except KeyboardInterrupt:
        tell("etlrun: interrupted")
        raise SystemExit(INTERRUPTED) from None
    doc = of_search(search, folder)
    try:
        write_atomically(folder / RESULTS, RENDER["json"](doc))
        write_atomically(folder / PAGE, RENDER["html"](doc))
    except OSError as error:
        raise unwritable(folder, error) from error
    show(doc)
    if search.end == FOUND:
        name = target.stem if target is not None else "tuned"
        _hand_over(overlay(search, name, _finding(target, files)), target)


def _hand_over(text: str, target: Path | None) -> None:
    if target is None:
        say_whole(f"\n{text}")
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text)
    except OSError as error:
        say_whole(text)
        remedy = "the overlay is printed above"
        raise WorldError("--write", f"{target}: {error}", "a new file", remedy) from error
    say(f"overlay   {target}")


def _finding(target: Path | None, files: list[str]) -> list[str]:
    """Return the options that name config files for a command that finds the overlay."""
    if target is None or "--config-dir" in files or target.resolve().parents[1] == config_dir():
        return files
    return [*files, "--config-dir", str(target.parent.parent)]


def _target(path: Path) -> Path:
    if path.exists():
        remedy = "choose another name, or remove it: a review of what replaces what is git's"
        raise WorldError("--write", f"{path}, which exists", "a new file", remedy)
    if path.suffix != ".yaml" or path.absolute().parent.name != "experiment":
        expected = "a file *.yaml in a folder `experiment`, where configs find it"
        raise WorldError("--write", str(path), expected, "write it to conf/experiment/tuned.yaml, or another such file")
    refuse_unwritable(path.parent, "--write")
    return path
