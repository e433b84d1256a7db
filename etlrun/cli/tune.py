"""`etlrun tune`: the fastest config that sees the same data, with its proof, for a review."""

import dataclasses
import json
import signal
from argparse import Namespace
from dataclasses import asdict, field
from pathlib import Path

from etlrun.config import grid
from etlrun.config.folders import config_dir, found_folder
from etlrun.config.grid import Job
from etlrun.config.overrides import typed
from etlrun.config.request import Request, composer, with_hydra
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse, parse_command
from etlrun.record.folders import SEARCH, WINDOWS, found_by
from etlrun.record.record import PAGE, RESULTS, held, unwritable
from etlrun.stages import STAGES
from etlrun.stages.sweep import Tune
from etlrun.system.errors import INTERRUPTED, ConfigError, Fault, WorldError, counted
from etlrun.system.files import refuse_unwritable, write_atomically
from etlrun.system.terminal import say, say_whole, tell
from etlrun.system.values import Block, Composed, frozen

RESUME = f"{Tune.path}.resume="


@frozen
class Asked:
    """What a search was asked for, and keeps in its folder.

    Attributes:
        overrides: Overrides of the config, without those of the search.
        config: The config that it starts from.
        tune: Settings of the search.
        files: Options that name the folder and the name of config files.
    """

    overrides: list[str]
    config: Block
    tune: Tune
    files: list[str] = field(default_factory=list)


def tune(known: Namespace) -> None:
    """Search for the fastest config; status 0 whatever it found, 130 if interrupted; `EtlrunError` if none runs."""
    request = known.request
    settings, job = grid.tuned(request, STAGES)
    job.plan.spec.require_one_host("a search measures the input of one host")
    target = None if known.write is None else _target(known.write)
    if settings.resume is not None:
        folder = found_by(settings.resume, RESUME, "search")
        asked = _resumed(folder, settings, request)
    else:
        folder = Path(str(with_hydra(composer(request), request.overrides).hydra.run.dir))
        searching = (f"{Tune.path}.", f"{Tune.path}=", "hydra")
        own = [word for word in request.overrides if not word.lstrip("+").startswith(searching)]
        asked = Asked(overrides=own, config=job.config, tune=settings, files=request.files)
        if (folder / SEARCH).exists():
            remedy = f"resume it with: etlrun tune {typed(RESUME, folder)}, or choose another hydra.run.dir"
            raise WorldError(str(folder), "a search", "a new folder for each search", remedy)
    with held(folder):
        _search(folder, asked, target)


def _search(folder: Path, asked: Asked, target: Path | None) -> None:
    from etlrun.report.render import RENDER, show
    from etlrun.sweep.tune import predict
    from etlrun.sweep.tune.report import of_search, overlay
    from etlrun.sweep.tune.search import FOUND, Search
    from etlrun.sweep.tune.space import Windows

    try:
        write_atomically(folder / SEARCH, json.dumps(asdict(asked), indent=2, default=str) + "\n")
    except OSError as error:
        raise unwritable(folder, error) from error
    resume = f"etlrun tune {typed(RESUME, folder)}"
    job = Job(overrides=asked.overrides, config=asked.config, plan=plan(parse(asked.config, STAGES)))
    search = Search(job, asked.tune, Windows(folder / WINDOWS, asked.overrides), tell, asked.files)
    tell(f"tune    {counted(len(search.space), 'config')}, {asked.tune.budget_s:g} s of measuring, in {folder}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that it says how to resume
    try:
        predict.prepare(job.plan.spec.dataset)
        search.run()
    except KeyboardInterrupt:
        tell(f"etlrun: interrupted; resume with: {resume}")
        raise SystemExit(INTERRUPTED) from None
    except WorldError:
        tell(f"etlrun: the search stops; once that is mended, resume with: {resume}")
        raise
    doc = of_search(search, folder)
    try:
        write_atomically(folder / RESULTS, RENDER["json"](doc))
        write_atomically(folder / PAGE, RENDER["html"](doc))
    except OSError as error:
        raise unwritable(folder, error) from error
    show(doc)
    if search.end == FOUND:
        name = target.stem if target is not None else "tuned"
        _hand_over(overlay(search, name, _finding(target, asked.files)), target)


def _hand_over(text: str, target: Path | None) -> None:
    if target is None:
        say_whole(f"\n{text}")
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text)
    except OSError as error:
        say_whole(text)
        remedy = "the overlay is printed above; or free disk space, and resume the search with another --write"
        raise WorldError("--write", f"{target}: {error}", "a new file", remedy) from error
    say(f"overlay   {target}")


def _finding(target: Path | None, files: list[str]) -> list[str]:
    """Return the options that name config files for a command that finds the overlay."""
    if target is None or "--config-dir" in files:
        return files
    folder = target.parent.parent
    is_found = folder.resolve() in (config_dir().resolve(), Path(found_folder() or "conf").resolve())
    return files if is_found else [*files, "--config-dir", str(folder)]


def _target(path: Path) -> Path:
    if path.exists():
        remedy = "choose another name, or remove it: a review of what replaces what is git's"
        raise WorldError("--write", f"{path}, which exists", "a new file", remedy)
    if path.suffix != ".yaml" or path.absolute().parent.name != "experiment":
        expected = "a file *.yaml in a folder `experiment`, where configs find it"
        raise WorldError("--write", str(path), expected, "write it to conf/experiment/tuned.yaml, or another such file")
    refuse_unwritable(path.parent, "--write")
    return path


def _resumed(folder: Path, now: Tune, request: Request) -> Asked:
    """Return what the search in a folder was asked for, with the settings that are given now."""
    given = [word for word in request.overrides if not word.lstrip("+").startswith(f"{Tune.path}.")] + request.files
    if given:
        expected = "settings of `tune` alone: a search keeps the config that it started with"
        raise ConfigError([Fault("overrides", " ".join(given), expected, "leave them out")])
    try:
        before: Composed = json.loads((folder / SEARCH).read_bytes())
        tune = parse_command({**before["tune"], "allow": list(before["tune"]["allow"]), "resume": None}, Tune)
        keys = {word.lstrip("+").partition("=")[0].removeprefix(f"{Tune.path}.") for word in request.overrides}
        tune = dataclasses.replace(tune, **{key: getattr(now, key) for key in keys - {"resume"}})
        return Asked(**{**before, "tune": tune})
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        found, expected = f"no search ({type(error).__name__}: {error})", f"the folder of a search, with its {SEARCH}"
        raise WorldError(str(folder), found, expected, "pass the folder that `etlrun tune` printed") from error
