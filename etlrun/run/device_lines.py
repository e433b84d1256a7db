"""Lines of a run about its device."""

from __future__ import annotations

from etlrun.planning.spec import RunSpec
from etlrun.record.record import Record
from etlrun.run.backend import Backend
from etlrun.system.machine import rounded
from etlrun.system.terminal import say_note, tell


def worker(spec: RunSpec, backend: Backend) -> str:
    """Return the name of the accelerator whose utilization (AU) the run reports."""
    if not spec.model.learns:
        return "the emulated accelerator"
    return "the GPU" if backend.host.accelerators else "the model"


def say_device(record: Record, backend: Backend, spec: RunSpec) -> None:
    """Print the device of the run, with notes on unused or shared GPUs, and on steps that nothing compiles."""
    host = backend.host
    cores = f"{host.cores} core{'s' if host.cores > 1 else ''}"
    notes = [backend.unseen] if backend.unseen else []
    sharing = record.summary.jobs_on_gpu
    if host.accelerators and sharing > 1:
        notes.append(f"Up to {sharing} concurrent jobs share this GPU, which affects their times and its memory.")
    if spec.fit is not None and spec.fit.mixed_precision == "auto":
        notes.append(f"{spec.fit.key('mixed_precision')} = auto: {host.precision}.")
    if backend.name == "jax" and spec.fit is not None and spec.model.learns and spec.fit.jit_compile is False:
        key = spec.fit.key("jit_compile")
        notes.append(f"{key} = false: Keras's jax backend takes each operation of a step by itself; set {key}=auto.")
    tell(f"device  {host.device}, {cores}, {rounded(host.memory_bytes)}")
    for note in notes:
        say_note(note)
        record.remark(note)
