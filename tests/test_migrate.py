"""`etlrun migrate`: old keys in config files get their new names, and nothing else in the files changes."""

import os
import stat
from pathlib import Path

import pytest

from etlrun.cli import main
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.system import deprecated
from etlrun.system.respelled import package_of
from tests.disks import fill, mounted
from tests.own_configs import write

EXPERIMENT = """\
# @package _global_
# Coarse: transform.decode.scaled in a comment stays.

defaults:
  - override /logger: mlflow   # a tail
  - _self_

transform:
    decode: &decoding
        "scaled"  :   true     # as 'scaled' was
        library: turbo
logger: {experiment: 'scaled 😀', tracking_uri: null}
sweep:
  zip: [[transform.decode.scaled, load.prefetch]]
  exclude:
  - "transform.decode.scaled=True load.prefetch!=1"
trainer: {label_smoothing: 0.0}
hydra:
  sweeper:
    params:
      +transform.decode.scaled: true,false
"""
REWRITTEN = (
    EXPERIMENT.replace('"scaled"', '"fast"')
    .replace("{experiment:", "{experiment_name:")
    .replace("[transform.decode.scaled", "[transform.decode.fast")
    .replace('"transform.decode.scaled', '"transform.decode.fast')
    .replace("+transform.decode.scaled", "+transform.decode.fast")
)
LINES = {
    10: "transform.decode.scaled -> transform.decode.fast",
    12: "logger.experiment -> logger.experiment_name",
    14: "transform.decode.scaled -> transform.decode.fast",
    16: "transform.decode.scaled -> transform.decode.fast",
    21: "transform.decode.scaled -> transform.decode.fast",
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf"
    write(folder / "experiment/coarse.yaml", EXPERIMENT)
    write(folder / "transform/wide.yaml", "# Wide.\ndefaults: [small_64, _self_]\ndecode:\n  scaled: false\n")
    write(folder / "experiment/other.yaml", "# @package _global_\n# Other.\ntrainer: {epochs: 2}\n")
    return folder


def migrated(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> tuple[str, str]:
    """What the command prints on both streams."""
    capsys.readouterr()
    if status:
        with pytest.raises(SystemExit) as ended:
            main.main(["migrate", *words])
        assert ended.value.code == status
    else:
        main.main(["migrate", *words])
    out, err = capsys.readouterr()
    return out, err


def test_only_the_names_of_old_keys_are_replaced(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"conf/experiment/coarse.yaml:{line}: {what}\n" for line, what in LINES.items()]
    lines.append("conf/transform/wide.yaml:4: transform.decode.scaled -> transform.decode.fast\n")
    assert migrated(capsys) == ("".join(lines) + "2 of 3 config files rewritten\n", "")
    assert (conf / "experiment/coarse.yaml").read_text() == REWRITTEN
    assert migrated(capsys) == ("0 of 3 config files rewritten\n", "")
    assert (conf / "experiment/coarse.yaml").read_text() == REWRITTEN


def test_the_check_writes_nothing(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = conf / "transform/wide.yaml"
    before = wide.read_bytes()
    assert migrated(capsys, "conf/transform", "--check", status=1) == (
        "conf/transform/wide.yaml:4: transform.decode.scaled -> transform.decode.fast\n1 of 1 config file to rewrite\n",
        "",
    )
    assert wide.read_bytes() == before
    assert migrated(capsys, "conf/experiment/other.yaml", "--check") == ("0 of 1 config file to rewrite\n", "")


def test_plans_are_the_same_afterwards_and_the_configs_sound(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("experiment=coarse", "transform=wide")
    before = [grid.resolve(Request(overrides=[word], config_dir=str(conf)), STAGES).config for word in words]
    migrated(capsys)
    deprecated.begin()
    assert [grid.resolve(Request(overrides=[word], config_dir=str(conf)), STAGES).config for word in words] == before
    main.main(["check", "--config-dir", "conf"])
    out, err = capsys.readouterr()
    assert out.endswith(": no fault\n")
    assert err == ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks_stay(
    conf: Path, capsys: pytest.CaptureFixture[str], end: str, encoding: str
) -> None:
    path = conf / "whole.yaml"
    path.write_bytes(EXPERIMENT.partition("defaults")[2].replace("\n", end).encode(encoding))
    text = EXPERIMENT[EXPERIMENT.index("transform:") :]
    path.write_bytes(text.replace("\n", end).encode(encoding))
    migrated(capsys, "conf/whole.yaml")
    assert path.read_bytes() == REWRITTEN[REWRITTEN.index("transform:") :].replace("\n", end).encode(encoding)


def test_documents_of_one_file_are_each_rewritten(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = conf / "two.yaml"
    path.write_text("transform: {decode: {scaled: true}}\n---\n# second\nlogger:\n  experiment: a\n...\n")
    migrated(capsys, "conf/two.yaml")
    assert path.read_text() == "transform: {decode: {fast: true}}\n---\n# second\nlogger:\n  experiment_name: a\n...\n"


def test_a_merged_block_is_that_around_it(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = conf / "transform/merged.yaml"
    text = "# Merged.\ndefaults: [small_64, _self_]\ndecode:\n  <<: {scaled: true}\n  library: turbo\n"
    path.write_text(text)
    plan = grid.resolve(Request(overrides=["transform=merged"], config_dir=str(conf)), STAGES).plan
    assert plan.fingerprint == grid.resolve(Request(overrides=["transform.decode.fast=true"]), STAGES).plan.fingerprint
    migrated(capsys, str(path))
    assert path.read_text() == text.replace("scaled", "fast")


@pytest.mark.parametrize(
    ("folder", "text", "package"),
    [
        ("transform", "# @package _global_\ntransform: {decode: {scaled: true}}\n", ""),
        ("transform", "decode: {scaled: true}\n", "transform"),
        ("experiment", "# @package transform.decode\nscaled: true\nlibrary: turbo\n", "transform.decode"),
        ("experiment", "#@package _global_.transform\n# x\ndecode: {scaled: true}\n", "transform"),
        ("any", "transform: {decode: {scaled: true}}\n", ""),
    ],
)
def test_a_package_is_that_of_the_header_or_of_the_folder(
    conf: Path, capsys: pytest.CaptureFixture[str], folder: str, text: str, package: str
) -> None:
    path = conf / folder / "one.yaml"
    write(path, text)
    assert package == "" or package_of(folder, text) == package
    migrated(capsys, str(path))
    assert path.read_text() == text.replace("scaled", "fast")


BOMB = "".join(f"a{place}: &a{place} [{', '.join([f'*a{place - 1}'] * 9 if place else ['x'])}]\n" for place in range(7))


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("logger/comet.yaml", "_target_: a.Comet\nexperiment: mine\n", "`_target_` is no key of a config"),
        ("deploy.yaml", "services: {a: b}\ntransform: {decode: {scaled: 1}}\n", "`services` is no key of a config"),
        (
            "chart.yaml",
            "{{- if x }}\ntransform: {decode: {scaled: 1}}\n",
            "it is a template, and no YAML that can be read",
        ),
        ("bomb.yaml", f"{BOMB}scaled: 1\n", "its aliases expand to more than 100,000 values"),
    ],
)
def test_files_of_other_programs_are_left_alone(
    conf: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, why: str
) -> None:
    write(conf / name, text)
    assert migrated(capsys, f"conf/{name}") == (
        "0 of 1 config file rewritten\n",
        f"etlrun: conf/{name}: left as it is, since {why}\n",
    )
    assert (conf / name).read_text() == text


def test_what_cannot_be_rewritten_is_named_and_all_else_is_rewritten(
    conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "alias.yaml": "transform:\n  decode: &it {scaled: true}\n  resize: *it\n",
        "both.yaml": "transform:\n  decode:\n    fast: true\n    scaled: true\n",
    }
    for name, text in texts.items():
        write(conf / name, text)
    by_hand = "found transform.decode.scaled where it can't be replaced by itself; expected transform.decode.fast"
    out, err = migrated(capsys, status=1)
    assert out.endswith("2 of 5 config files rewritten\n")
    assert err == (
        f"etlrun: 2 faults\n  conf/alias.yaml:2: {by_hand}\n    -> write `fast` in the place of `scaled` by hand\n"
        "  conf/both.yaml:4: found transform.decode.scaled, and transform.decode.fast in line 3; expected "
        "transform.decode.fast alone\n    -> remove `scaled`, the deprecated name\n"
    )
    assert {name: (conf / name).read_text() for name in texts} == texts


@pytest.mark.parametrize("check", [(), ("--check",)])
@pytest.mark.parametrize(
    ("end", "line", "found"),
    [
        ("bad: [\n", 2, "no value while parsing a flow node; expected YAML"),
        ("<<<<<<< HEAD\na: 1\n", 2, "a conflict marker of git; expected YAML\n    -> resolve the conflict"),
    ],
)
def test_what_is_no_yaml_is_named_with_its_line(
    conf: Path, capsys: pytest.CaptureFixture[str], end: str, line: int, found: str, check: tuple[str, ...]
) -> None:
    write(conf / "bad.yaml", f"decode: {{scaled: true}}\n{end}")
    assert migrated(capsys, "conf/bad.yaml", *check, status=1) == (
        f"0 of 1 config file {'to rewrite' if check else 'rewritten'}\n",
        f"etlrun: 1 fault\n  conf/bad.yaml:{line}: found {found}\n",
    )


def test_a_link_stays_one_and_permissions_stay(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = conf.parent / "real.yaml"
    real.write_text("transform: {decode: {scaled: true}}\n")
    real.chmod(0o640)
    (conf / "link.yaml").symlink_to(real)
    assert migrated(capsys, "conf/link.yaml", "real.yaml")[0].endswith("1 of 1 config file rewritten\n")
    assert (conf / "link.yaml").is_symlink()
    assert real.read_text() == "transform: {decode: {fast: true}}\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(path.name for path in conf.parent.iterdir()) == ["conf", "real.yaml"]


def test_the_config_of_a_run_is_rewritten_if_the_run_is_named(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.yaml", "summary.json"):
        write(conf.parent / "outputs/run" / name, "transform: {decode: {scaled: true}}\n")
    assert migrated(capsys, "outputs") == ("0 of 0 config files rewritten\n", "")
    line = "outputs/run/config.yaml:1: transform.decode.scaled -> transform.decode.fast\n"
    assert migrated(capsys, "outputs/run") == (f"{line}1 of 1 config file rewritten\n", "")


def test_on_a_full_disk_the_file_stays_as_it_was(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mounted(conf / "disk", "64k") as disk:
        write(disk / "whole.yaml", "transform: {decode: {scaled: true}}\n")
        filler = fill(disk)
        out, err = migrated(capsys, "conf/disk", status=1)
        found = "found No space left on device; expected a file that this user can access"
        assert (out, err.splitlines()[:2]) == ("", ["etlrun: 1 fault", f"  conf/disk/whole.yaml: {found}"])
        assert (disk / "whole.yaml").read_text() == "transform: {decode: {scaled: true}}\n"
        assert {path.name for path in disk.iterdir()} == {"whole.yaml", filler.name}


def test_what_is_no_file_is_refused(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(conf / "pipe.yaml")
    found = "found neither a file nor a folder; expected a config file, or a folder of them"
    assert migrated(capsys, "conf/pipe.yaml", status=2) == ("", f"etlrun: 1 fault\n  conf/pipe.yaml: {found}\n")


@pytest.mark.usefixtures("conf")
def test_a_path_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert migrated(capsys, "none.yaml", "conf", status=2) == (
        "",
        "etlrun: 1 fault\n  none.yaml: found no such file or folder; expected a config file, or a folder of them\n",
    )
