"""Wheel and sdist: what they contain, and that an installed etlrun and a project of `etlrun init` need no checkout."""

import importlib.util
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import Once
from tests.disks import mounted
from tests.golden import Says
from tests.runs import finish, start
from tests.wheels import CHECKOUT, Environment, build, content, wheel_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed"),
]
WHO = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
VALUE = "strength: 0.5"


def by_heart(readme: str) -> Iterator[str]:
    """The commands of a README in their order; the last one is about a value that has been changed."""
    return iter(re.findall(r"^    ((?:pip|etlrun|git) ?.*)$", readme, re.MULTILINE))


@pytest.mark.needs("pre-commit")
def test_a_new_project_does_at_once_what_its_readme_says(once: Once, tmp_path: Path, says: Says) -> None:
    environment = Environment.with_wheel(tmp_path / "venv", wheel_of(once))
    environment.check("etlrun init my-trees", tmp_path)
    project = tmp_path / "my-trees"
    said = {}
    *commands, review = by_heart((project / "README.md").read_text(encoding="utf-8"))
    for command in commands:
        said[command] = environment.check(command, project, **WHO)
    says([command.split(" -")[0] for command in commands])
    assert "status    completed in " in said["etlrun experiment=first"]
    (summary,) = project.glob("outputs/*/*/summary.json")
    assert json.loads(summary.read_text(encoding="utf-8"))["epochs"][-1]["val_accuracy"] > 0.9
    assert "a. transform.my_trees_grey" in said["etlrun plan experiment=first"]
    assert "2 passed" in environment.check("pytest", project)
    assert environment.check("git status --porcelain --ignored=no", project) == ""

    assert environment.check(review, project) == "first: no difference\npolicy: passed (HEAD:conf/etlrun-policy.yaml)\n"
    experiment = project / "conf" / "experiment" / "first.yaml"
    text = experiment.read_text(encoding="utf-8")
    assert VALUE in text
    experiment.write_text(text.replace(VALUE, "strength: 0.8"), encoding="utf-8")
    status, changed, _ = environment.run(review, project)
    assert status == 4  # the policy wants a label
    says(changed.splitlines()[:2])

    environment.check("etlrun init others", tmp_path)  # two projects in one environment stand beside each other
    environment.check("pip install -e .", tmp_path / "others")
    assert "units" in environment.check("etlrun help others_net", tmp_path)
    assert environment.check("etlrun check", tmp_path / "others").endswith(": no fault\n")


QUICK = "model=emulated model.step_ms=1 model.eval_step_ms=1 trainer.epochs=1"


@pytest.fixture(scope="module")
def sdist(once: Once) -> Path:
    return next(once("sdist", lambda folder: build("sdist", CHECKOUT, folder)).glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(once: Once) -> Path:
    return wheel_of(once)


@pytest.fixture(scope="module")
def environment(once: Once, wheel: Path) -> Environment:
    """An environment that has the wheel; no test installs anything else there."""
    folder = once("environment", lambda folder: Environment.with_wheel(folder / "venv", wheel))
    return Environment(folder / "venv")


def files(*folders: str) -> set[str]:
    """Files of the checkout in these folders, without what is made when they are used."""
    found = (path for folder in folders for path in (CHECKOUT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(CHECKOUT)) for path in found if "__pycache__" not in path.parts}


def test_a_wheel_has_the_package_with_its_types_and_template_the_configs_and_the_licence(wheel: Path) -> None:
    shipped = {name for name in content(wheel) if ".dist-info/" not in name}
    configs = {f"etlrun/{name}" for name in files("conf")}
    assert shipped == files("etlrun") | configs
    assert {"etlrun/py.typed", "etlrun/template/.github/workflows/review.yml", "etlrun/template/.gitignore"} <= shipped
    about = {name.partition(".dist-info/")[2] for name in content(wheel)} - {""}
    assert about == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def test_the_description_links_to_files_of_the_checkout_at_the_tag_of_the_version(wheel: Path) -> None:
    (metadata,) = (text for name, text in content(wheel).items() if name.endswith("/METADATA"))
    links = re.findall(r"\]\(([^)]*)\)", metadata.decode())
    assert all(link.startswith("https://") for link in links), links
    at = re.compile(rf"https://github.com/etlrun/etlrun/(raw|blob)/v{re.escape(version('etlrun'))}/([^#]+)(?:#.*)?")
    own = [at.fullmatch(link) for link in links if "/etlrun/etlrun/" in link]
    assert all(own), links
    named = {of.group(2, 1) for of in own if of}
    assert {("docs/images/verdict.svg", "raw"), ("docs/install.md", "blob"), ("CHANGELOG.md", "blob")} <= named
    assert all((CHECKOUT / path).is_file() for path, _ in named), named


def test_an_sdist_has_tests_configs_and_docs_no_outputs_and_makes_the_same_wheel(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    inside = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert files("etlrun", "tests", "conf", "docs", "benchmarks", "comment", ".ci") <= inside
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt", "pyproject.toml"} <= inside
    made = [name for name in inside if name.startswith("outputs/") or "__pycache__" in name]
    assert made == ["outputs/.gitkeep"]
    assert content(build("wheel", source, tmp_path / "built")) == content(wheel)


@pytest.mark.parametrize("name", ["empty", "a folder", "Übung 日本"])
def test_an_installed_etlrun_trains_in_an_empty_folder(name: str, environment: Environment, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert "status    completed in " in environment.check(f"etlrun {QUICK}", folder)
    assert [path.name for path in folder.iterdir()] == ["outputs"]
    (summary,) = folder.glob("outputs/*/*/summary.json")
    assert json.loads(summary.read_text(encoding="utf-8"))["status"] == "completed"


def test_it_plans_as_a_checkout_does(environment: Environment, tmp_path: Path) -> None:
    from_checkout = finish(start(["plan", "experiment=parallel"], CHECKOUT))
    assert environment.run("etlrun plan experiment=parallel", tmp_path) == from_checkout
    assert environment.run("python -m etlrun plan experiment=parallel", tmp_path) == from_checkout


def test_it_finds_own_configs(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "conf" / "load").mkdir(parents=True)
    (tmp_path / "conf" / "load" / "mine.yaml").write_text("# Mine.\ndefaults: [plain, _self_]\nbatch_size: 7\n")
    assert " batch_size            7 " in environment.check("etlrun plan --all --config-dir conf load=mine", tmp_path)
    checked = environment.check("etlrun check --config-dir conf", tmp_path)
    assert checked.splitlines()[-1].endswith(": no fault")


def test_its_version_is_that_of_the_package(environment: Environment, tmp_path: Path) -> None:
    import etlrun

    assert environment.check("etlrun --version", tmp_path).startswith(f"etlrun {etlrun.__version__} (Python ")


def test_a_folder_that_can_not_be_written_to_is_refused_at_once(environment: Environment, tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "64k") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)  # root can write to any other folder
        status, out, err = environment.run(f"etlrun {QUICK}", folder)
    assert (status, out) == (1, "")
    (line, remedy) = err.splitlines()[1:]
    assert line.startswith("  hydra.run.dir: found outputs/")
    assert line.endswith(": Read-only file system; expected a folder that can be created and written to")
    assert remedy == "    -> choose another hydra.run.dir, or make the folder writable"
