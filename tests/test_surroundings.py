"""Surroundings of commands: names that are no Unicode, terminals of ASCII, folders that are gone, native messages."""

import gc
import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.system.errors import WorldError
from etlrun.system.files import write_atomically
from etlrun.system.loading import examples_told, loading, native_messages_kept
from tests.commands import complaint
from tests.disks import said_on_full
from tests.golden import Case, Golden, Says, cases
from tests.made import made, saved
from tests.own import image
from tests.runs import emulated, finish_well, run_here, start

LATIN = os.fsdecode(b"caf\xe9")


@pytest.fixture
def latin(tmp_path: Path) -> Path:
    """Ten images of two classes, whose names, and that of a folder above them, are no UTF-8."""
    for number in range(10):
        path = tmp_path / "latin" / "ab"[number % 2] / LATIN / f"{LATIN}{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    return tmp_path / "latin"


def test_a_text_with_a_name_that_is_no_unicode_is_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / "page.html", LATIN)
    assert (tmp_path / "page.html").read_bytes() == b"caf\\udce9"


def test_the_doctor_and_show_name_such_files(
    latin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (latin / "a" / LATIN / f"{LATIN}0.jpg").write_bytes(image(0)[:100])
    given = ["dataset=folder", f"dataset.dir={latin}", "dataset.split=train", "dataset.eval_split=null"]
    cli.main(["doctor", *given])
    place = f"{latin}/a/caf\\udce9/caf\\udce90.jpg"
    assert place in capsys.readouterr().out
    cli.main(["doctor", *given, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["findings"][0]["places"][0].startswith(f"{place}: ")
    cli.main(["show", *given, "dataset.on_corrupt=skip", "--output", f"{LATIN}-show.html"])
    assert "caf\\udce9-show.html" in (tmp_path / f"{LATIN}-show.html").read_text()


def test_the_evaluation_of_a_run_names_such_images(
    latin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["dataset=folder", f"dataset.dir={latin}", "transform=small_64", "cache=none", "load.batch_size=4"]
    run = tmp_path / "run"
    assert run_here(run, [*given, "trainer.epochs=1", "model.alpha=0.35"])[0] == 0
    capsys.readouterr()
    cli.main(["evaluate", str(run), "dataset.split=train", "--format", "json"])
    mistakes = json.loads(capsys.readouterr().out)["mistakes"]
    assert mistakes[0]["place"].startswith(f"{latin}/")
    cli.main(["predict", str(run), str(latin), "--output", str(tmp_path / "predicted.csv")])
    lines = (tmp_path / "predicted.csv").read_bytes().splitlines()
    assert (len(lines), all(b"/caf\xe9/caf\xe9" in line for line in lines[1:])) == (11, True)
    cli.main(["predict", str(run), str(latin), "--format", "jsonl", "--top", "1"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (len(rows), all("/caf\\udce9/caf\\udce9" in row["path"] for row in rows)) == (10, True)


def answer(*words: str, cwd: Path, **environment: str) -> tuple[int, str, str]:
    found = subprocess.run(
        [sys.executable, "-m", "etlrun", *words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return found.returncode, found.stdout, found.stderr


@pytest.mark.slow
def test_a_run_in_a_folder_that_is_no_unicode_ends_like_others(tmp_path: Path) -> None:
    folder = tmp_path / LATIN
    folder.mkdir()
    status, out, err = answer("trainer=drain", "cache=none", "transform=small_64", cwd=folder)
    assert (status, "\nfolder    " in out) == (0, True), err
    (page,) = folder.glob("outputs/*/*/report.html")
    assert "completed" in page.read_text()


def test_a_terminal_of_ascii_shows_escaped_names(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / "pets" / ("é", "b")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    given = ["plan", "dataset=folder", "dataset.dir=pets", "dataset.split=train", "load.class_weights=balanced"]
    status, out, err = answer(*given, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (status, err) == (0, "")
    assert "\\xe9 2" in out


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_whose_reader_has_left_ends_quietly(unbuffered: str, tmp_path: Path) -> None:
    """One that prints itself: Rich's consoles end quietly by themselves."""
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(
        [sys.executable, "-m", "etlrun", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (found.returncode, found.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("config schema", ""),
        ("diff '' load.prefetch=1", "1"),
        ("runs ls .", ""),
        ("runs ls . --format json", "1"),
        ("report run", "1"),
        ("--version", "1"),
        ("--cfg job", "1"),
        pytest.param("--hydra-help", "1", marks=pytest.mark.slow),
    ],
)  # the first fills more than a buffer
def test_output_on_a_full_disk_is_reported(command: str, unbuffered: str, tmp_path: Path, says: Says) -> None:
    saved(made(tmp_path / "run"))
    says(said_on_full(shlex.split(command), unbuffered, tmp_path))


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("diff '' load.prefetch=1 --fail-on data --exit-code", 1),
        ("runs ls .", 0),
        ("report run", 0),
        ("--cfg job", 0),
    ],
)
def test_a_command_needs_no_standard_output(command: str, status: int, tmp_path: Path) -> None:
    saved(made(tmp_path / "run"))
    line = f"exec {sys.executable} -m etlrun {command} >&-"
    found = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S602
    assert (found.returncode, found.stdout, found.stderr) == (status, "", "")


def test_a_folder_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    says(complaint(capsys, "plan"))


@pytest.mark.slow
def test_python_without_assertions_is_refused(tmp_path: Path, says: Says) -> None:
    status, out, err = answer("plan", "-m", "load.prefetch=range(0,2)", cwd=tmp_path, PYTHONOPTIMIZE="1")
    assert (status, out) == (1, "")
    says(err)


@pytest.mark.parametrize("case", cases("refused_commands"))
def test_a_command_is_refused_with_its_whole_message(
    case: Case, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.yaml").touch()
    monkeypatch.chdir(tmp_path)
    message = complaint(capsys, *shlex.split(case["words"]), status=case["status"])
    golden(case, message.replace(str(tmp_path), "DIR"))


USUAL = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1.000001    1 port.cc:153] oneDNN custom operations are on.",
    "I0000 00:00:1.000001    1 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
    "I0000 00:00:1.000001    1 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use available CPU",
    "To enable the following instructions: AVX2 FMA, rebuild TensorFlow with the appropriate compiler flags.",
    "E0000 00:00:1.000001    1 cuda_dnn.cc:8579] Unable to register cuDNN factory: it has been registered already",
    "W0000 00:00:1.000001    1 computation_placer.cc:177] computation placer already registered.",
    "E0000 00:00:1.000001    1 cuda_platform.cc:52] failed call to cuInit: INTERNAL: UNKNOWN ERROR (303)",
)
WARNING = "W0000 00:00:1.000001    1 gpu_device.cc:2348] Cannot dlopen some GPU libraries."
WRONG = (
    "E0000 00:00:1.000001    1 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: out of memory (2)",
    "module.py:1: UserWarning: a library is old",
)


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What is left of all these lines."""
    with native_messages_kept():
        os.write(2, "".join(f"{line}\n" for line in (*USUAL, WARNING, *WRONG)).encode())
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(("level", "left"), [("1", (WARNING, *WRONG)), ("2", WRONG), ("0", (*USUAL, WARNING, *WRONG))])
def test_native_messages_of_machines_on_which_nothing_is_wrong_are_left_out(
    level: str, left: tuple[str, ...], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    assert said(capfd) == [*left]


def test_all_native_messages_of_an_import_that_fails_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with suppress(ImportError), native_messages_kept():
        os.write(2, f"{USUAL[1]}\n".encode())
        raise ImportError
    assert capfd.readouterr().err == f"{USUAL[1]}\n"


OF_EXAMPLES = (
    "E0000 00:00:1.000001    1 jpeg_mem.cc:331] Premature end of JPEG data. Stopped at line 0/141",
    "W0000 00:00:1.000001    1 op_kernel.cc:1845] INVALID_ARGUMENT: ValueError: jpeg::Uncompress failed.",
    "Traceback (most recent call last):", "", '  File "script_ops.py", line 269, in __call__', "    ret = func(*args)",
    "", "ValueError: jpeg::Uncompress failed.", "", "",
    "W0000 00:00:1.000001    1 local_rendezvous.cc:412] Local rendezvous is aborting with status: INVALID_ARGUMENT",
)  # fmt: skip


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (None, (WARNING, *WRONG)),
        (WorldError("a.jpg", "", "", ""), (WARNING, *WRONG)),
        (ValueError(), (WARNING, *OF_EXAMPLES, *WRONG)),
    ],
)
def test_what_tensorflow_says_of_examples_that_are_told_is_left_out(
    error: Exception | None, left: tuple[str, ...], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    with suppress(Exception), examples_told():
        os.write(2, "".join(f"{line}\n" for line in (WARNING, *OF_EXAMPLES, *WRONG)).encode())
        if error:
            raise error
    assert capfd.readouterr().err.splitlines() == [*left]


def test_an_interrupted_import_prints_what_one_that_succeeds_does(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    with suppress(KeyboardInterrupt), native_messages_kept():
        os.write(2, f"{USUAL[1]}\n{WRONG[0]}\n".encode())
        raise KeyboardInterrupt
    assert capfd.readouterr().err == f"{WRONG[0]}\n"


@pytest.mark.slow
def test_a_run_prints_its_own_lines_alone_on_standard_error(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """With the log level of a person, who has set none; in the first run, which prepares the sample, too."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    words = emulated(sample, "dataset=sample", "trainer.epochs=2", f"dataset.data_dir={tmp_path / 'data'}")
    words = [word for word in words if not word.startswith(("dataset=tfds", "dataset.name", "dataset.download"))]
    _, err = finish_well(start(words, tmp_path))
    says([line.split()[0:2] for line in err.splitlines()])


@pytest.mark.slow
def test_what_goes_wrong_in_tensorflow_later_is_printed() -> None:
    program = (
        "from etlrun.system.loading import load_tensorflow\n"
        "load_tensorflow()\n"
        "import tensorflow as tf\n"
        "try:\n"
        "    tf.zeros((1 << 20, 1 << 20), tf.float64)\n"
        "except tf.errors.ResourceExhaustedError as error:\n"
        "    print('exhausted')\n"
    )
    variables = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables, check=True)
    assert done.stdout == "exhausted\n"
    assert "OOM when allocating tensor with shape[1048576,1048576]" in done.stderr.splitlines()[-1]
    assert not [line for line in done.stderr.splitlines() if line.startswith(("I0000", "E0000"))]


def test_collections_go_on_after_an_import_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow_datasets", raising=False)
    with suppress(ImportError), loading():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
