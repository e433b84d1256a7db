import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from etlrun.system import machine
from etlrun.system.machine import free_disk_bytes, free_memory_bytes, processor


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_ROOT", tmp_path)


def group(root: Path, mount: str, name: str, files: dict[str, str]) -> None:
    folder = root / "sys/fs/cgroup" / mount / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)


def process(root: Path, text: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(text)


def test_without_groups_it_is_what_the_machine_has() -> None:
    assert free_memory_bytes() == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_container_of_version_2_counts_and_gives_file_pages_back(tmp_path: Path) -> None:
    process(tmp_path, "0::/pod/job\n")
    stat = "anon 5\ninactive_file 300\n"
    group(tmp_path, "", "pod/job", {"memory.max": "max\n", "memory.current": "900\n", "memory.stat": stat})
    group(tmp_path, "", "pod", {"memory.max": "1000\n", "memory.current": "900\n", "memory.stat": stat})
    assert free_memory_bytes() == 400


def test_the_tightest_group_counts(tmp_path: Path) -> None:
    process(tmp_path, "0::/pod/job\n")
    group(tmp_path, "", "pod/job", {"memory.max": "500\n", "memory.current": "450\n"})
    group(tmp_path, "", "pod", {"memory.max": "1000\n", "memory.current": "900\n"})
    assert free_memory_bytes() == 50


def test_a_container_of_version_1_counts(tmp_path: Path) -> None:
    process(tmp_path, "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n")
    files = {"memory.limit_in_bytes": "2000\n", "memory.usage_in_bytes": "1500\n"}
    group(tmp_path, "memory", "docker/abc", {**files, "memory.stat": "total_inactive_file 100\n"})
    assert free_memory_bytes() == 600


def test_a_container_that_sees_itself_as_the_root_counts(tmp_path: Path) -> None:
    process(tmp_path, "0::/\n")
    group(tmp_path, "", "", {"memory.max": "1000\n", "memory.current": "1200\n"})
    assert free_memory_bytes() == 0


@pytest.mark.parametrize(("name", "used"), [("RLIMIT_AS", "vms"), ("RLIMIT_DATA", "data")])
def test_a_limit_of_the_process_counts(name: str, used: str) -> None:
    most = getattr(psutil.Process().memory_info(), used) + 300_000_000
    code = f"""
        import resource
        from etlrun.system.machine import free_memory_bytes
        resource.setrlimit(resource.{name}, ({most}, {most}))
        print(free_memory_bytes())
    """
    left = int(subprocess.check_output([sys.executable, "-c", textwrap.dedent(code)], text=True))
    assert 0 < left < most


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("model\t\t: 7\nmodel name\t: Cores of 3: 5 GHz \nstepping\t: 2\n", "Cores of 3: 5 GHz"),
        ("model name\t: \nstepping\t: 2\n", platform.processor() or platform.machine()),
    ],
)
def test_the_model_of_a_cpu_is_that_of_its_line(text: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text)
    assert processor() == model


@pytest.mark.parametrize("name", ["not", "a file", "a dead link", "a name " + 50 * "too long"])
def test_disk_space_is_that_of_the_nearest_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "a dead link").symlink_to("nowhere")
    assert free_disk_bytes(tmp_path / name / "there") == pytest.approx(free_disk_bytes(tmp_path), rel=0.1)
