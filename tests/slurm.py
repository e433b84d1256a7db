"""A cluster with Slurm on this machine: a controller and two nodes of two cores each, all as processes of a test."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.runs import wait_for

BINARIES = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "setpriv")
_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=2
PartitionName=all Nodes=ALL Default=YES
"""


_SACCT = """\
#!/bin/sh
echo 'JobID|State|NodeList'
exec squeue --noheader --states=all --array --format='%i|%T|%N'
"""
"""A stand-in for the database of a cluster, whose command knows what the controller does."""


def _begin(folder: Path, daemons: ExitStack, *command: str) -> None:
    """Start a daemon that ends with the stack, and with this process if that is killed."""
    output = daemons.enter_context((folder / f"{command[0]}.out").open("ab"))
    command = ("setpriv", "--pdeathsig", "KILL", *command)
    process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    daemons.callback(process.wait)
    daemons.callback(process.kill)


def _idle() -> int:
    rows = said("sinfo", "--noheader", "--format=%T %D", "--partition=all").splitlines()
    return sum(int(count) for state, count in map(str.split, rows) if state == "idle")


def said(*command: str) -> str:
    """Output of a command that succeeds."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def cluster() -> Iterator[None]:
    """A cluster that ends with the block, and with this process; SLURM_CONF names it.

    Skipped where it can't be started. Its files are in a folder with a short name, since that of a Unix socket has at
    most 107 characters.
    """
    missing = [name for name in BINARIES if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine (apt-get install slurm-wlm munge)")
    if os.getuid():
        pytest.skip("only root can start a cluster with Slurm")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        _configure(folder)
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        names = {"socket": "sock", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        _begin(
            folder, stack, "munged", "-F", "--force", *(f"--{name}={folder}/munge.{end}" for name, end in names.items())
        )
        wait_for((folder / "munge.sock").exists)
        _begin(folder, stack, "slurmctld", "-D")
        for name in ("n1", "n2"):
            _begin(folder, stack, "slurmd", "-D", "-N", name)
        stack.callback(_end_jobs)
        wait_for(lambda: _idle() == 2)
        yield


def _configure(folder: Path) -> None:
    folder.chmod(0o755)
    for name in ("state", "n1", "n2", "bin"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    ports = dict(zip(("controller", "n1", "n2"), _free_ports(3), strict=True))
    (folder / "slurm.conf").write_text(_CONF.format(folder=folder, host=socket.gethostname().split(".")[0], **ports))
    (folder / "bin" / "sacct").write_text(_SACCT)
    (folder / "bin" / "sacct").chmod(0o755)


def _end_jobs() -> None:
    said("scancel", "--user=root")
    wait_for(lambda: not said("squeue", "--noheader").strip())


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
