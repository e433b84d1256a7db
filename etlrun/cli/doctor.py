"""`etlrun doctor` and `etlrun stats`: a dataset, a device, and figures of the training split."""

from __future__ import annotations

import dataclasses
import shlex
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from etlrun.cli.commands import Answer
from etlrun.config import grid
from etlrun.planning.plan import Plan
from etlrun.report.doc import Col, Doc, Lines, Table
from etlrun.report.render import pieces
from etlrun.stages import STAGES
from etlrun.stages.rows import Rows
from etlrun.system import machine
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.files import appearing, refuse_unwritable
from etlrun.system.terminal import progress, say_note

_PACKAGES = ("tensorflow", "jax", "keras")
_ALONE = {
    "report": ("Markdown of all, with the device", ("device", "all", "html", "format")),
    "device": ("the device alone", ("html", "all")),
}
"""Options that leave no place for others, with what they print."""


def doctor(known: Namespace) -> Answer:
    """Examine the dataset of a config, its device, or all for an issue; `EtlrunError` if options or data are unfit."""
    given = {**vars(known), "format": known.format != "text"}
    faults = [
        Fault(f"--{other}", f"it, beside --{option}", f"nothing: --{option} prints {prints}", "leave it out")
        for option, (prints, others) in _ALONE.items()
        for other in others
        if given[option] and given[other]
    ]
    if known.run is not None and not known.report:
        faults.append(Fault("--run", str(known.run), "it beside --report", "add --report"))
    if faults:
        raise ConfigError(faults)
    if known.report:
        from etlrun.cli.doctor_report import report

        return Answer(report(known.request, known.run))
    plan = grid.resolve(known.request.resuming(), STAGES).plan
    if known.device:
        return of_device(plan)
    if known.html is not None:
        refuse_unwritable(known.html.parent, "--html")
    with _prepared(plan), progress() as begin:
        from etlrun.datasets.examine.doctor import diagnosed, of_doctor

        made_by = shlex.join(["etlrun", "doctor", *known.words])
        doc = of_doctor(diagnosed(plan, begin, is_whole=known.all), made_by)
        if known.html is not None:
            with appearing(known.html, "--html") as file:
                file.writelines(pieces(doc))
            page = Lines([("page", f"{known.html}, {machine.rounded(known.html.stat().st_size)}")])
            doc = dataclasses.replace(doc, parts=[*doc.parts, page])
    return Answer(doc)


@contextmanager
def _prepared(plan: Plan) -> Iterator[None]:
    """Prepare TensorFlow for a dataset of images, so only after the config has been validated; rows need none."""
    if isinstance(plan.spec.dataset, Rows):
        yield
        return
    from etlrun.run.backend import prepare
    from etlrun.sources.corrupt import pillow_as_header_reader

    with prepare(None), pillow_as_header_reader():
        yield


def of_device(plan: Plan) -> Answer:
    """Try operations on the trainer's device, with status 1 if one fails; `WorldError` if there is no such device."""
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(plan.spec.fit) as backend:
        from etlrun.run.backend import built_for, fastest
        from etlrun.run.devices import tried

        host, listed = backend.host, machine.driver_gpus()
        policy = fastest(host.accelerators, listed) or "mixed_bfloat16"
        built, found = built_for(backend.name), [*tried(policy.removeprefix("mixed_"))]
        told: dict[str, Any] = {
            "device": f"{host.device}, {host.cores} core{'s' * (host.cores > 1)}, {machine.rounded(host.memory_bytes)}",
            "driver": machine.driver_version() or "none",
            "gpus": [f"{gpu.name}, compute capability {'.'.join(map(str, gpu.capability))}" for gpu in listed],
            "backend": f"Keras's {backend.name} backend",
            "versions": {name: version for name, version in backend.versions.items() if name in _PACKAGES},
            "built_for": None if built is None else str(built),
        }
    if backend.unseen:
        say_note(backend.unseen)
    texts = {**told, "gpus": "", "versions": ", ".join(map(" ".join, told["versions"].items()))}
    lines = [(name.replace("_", " "), text or "") for name, text in texts.items()]
    lines += [("gpus", gpu) for gpu in told["gpus"]]
    columns = [
        Col("name", "operation"),
        Col("compiled", "is_compiled"),
        Col("first s", "first_s", ".3f"),
        Col("ms", "call_ms", ".2f"),
        Col("result", lambda of: of.error or "works"),
    ]
    values = {**told, "operations": [dataclasses.asdict(of) for of in found]}
    doc = Doc("Device", [Lines(lines), Table(found, columns)], json=lambda: values)
    return Answer(doc, status=int(any(of.error for of in found)))


def stats(known: Namespace) -> Answer:
    """Print figures of the training split, of each column or of all pixels; `EtlrunError` if there are none."""
    plan = grid.resolve(known.request.resuming(), STAGES).plan
    if isinstance(plan.spec.dataset, Rows):
        from etlrun.datasets.examine.rows import of_stats

        with progress() as begin:
            return Answer(of_stats(plan, begin))
    with _prepared(plan):
        from etlrun.datasets.examine.images import measured

        means, deviations, count = measured(plan)
    text = f"# Of {count:,} training images, pixels in [0, 1].\ntransform:\n  normalize:\n"
    for name, values in (("mean", means), ("std", deviations)):
        text += f"    {name}: [{', '.join(f'{value:.4f}' for value in values)}]\n"
    return Answer(text)
