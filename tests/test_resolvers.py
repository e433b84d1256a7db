"""What SECURITY.md promises: no command calls resolvers that read the machine, nor what Hydra's own block names."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from etlrun.cli.main import main
from etlrun.config.files import machine_resolvers
from tests.configs import CONF, composed, plan_of, refusal_of_request
from tests.golden import Says
from tests.readers import logging_as_it_was
from tests.repository import Repository
from tests.runs import finish, start

SECRET = "of-this-machine-alone"  # noqa: S105 - of no one
EXPECTED = "expected a value that is the same on every machine\n    -> write the value, or "
IN_FILE = f"{EXPECTED}??? and give it on the command line"
PETS = "defaults: [folder, _self_]\ndir: {}\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Three sound configs in `mine`, in the working directory of a process that knows a secret."""
    monkeypatch.setenv("SECRET", SECRET)
    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made


def answered(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The status of a command, and all that it printed."""
    with pytest.raises(SystemExit) as caught, logging_as_it_was():
        main(list(words))
    told = capfd.readouterr()
    return int(str(caught.value.code)), told.out + told.err


RESOLVERS = {
    "${oc.env:SECRET}": "oc.env",
    "/data/${oc.env:SECRET}/pets": "oc.env",
    "${oc.env:SECRET,photos}": "oc.env",
    "${oc.decode:${oc.env:SECRET}}": "oc.env, oc.decode",
    "'${oc.decode:\"\\${oc.env:SECRET}\"}'": "oc.env, oc.decode",
    "'${oc.create:{a: 1}}'": "oc.create",
    "${now:%Y}": "now",
    "${hydra:runtime.cwd}": "hydra",
    "${python_version:}": "python_version",
    "'${ oc.${..name}:SECRET}'": "oc._",
    "${a_resolver_of_a_plugin:3}": "a_resolver_of_a_plugin",
}
"""Values of a config file that read the machine, and the names of their resolvers."""
COMMANDS = (
    "",
    "-m",
    "plan -m",
    "config eject",
    "show",
    "doctor",
    "data stats",
    "tune",
    "cache why",
)


@pytest.mark.parametrize(
    ("words", "value"), [*(("plan", value) for value in RESOLVERS), *((words, [*RESOLVERS][3]) for words in COMMANDS)]
)
def test_every_command_refuses_them(
    words: str, value: str, repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    repository.write("dataset/pets.yaml", PETS.format(value))
    status, told = answered(capfd, *words.split(), "--config-dir", "mine", "dataset=pets")
    name = RESOLVERS[value]
    found = f"the resolver{'s' * (', ' in name)} {name}"
    assert (status, told) == (
        2,
        f"etlrun: 1 fault\n  {repository.configs}/dataset/pets.yaml:2: dir: found {found}; {IN_FILE}\n",
    )


def test_a_review_tells_their_place_and_nothing_of_the_machine(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    repository.write("dataset/pets.yaml", PETS.format("photos"))
    repository.commit("Pets")
    repository.write("dataset/pets.yaml", PETS.format("${oc.env:SECRET}"))
    repository.commit("From the machine")
    place = "HEAD:mine/dataset/pets.yaml:2: dir"
    for form, where in (("text", place), ("markdown", place), ("json", '"file": "HEAD:mine/dataset/pets.yaml"')):
        status, told = answered(capfd, "diff", "HEAD~1", "HEAD", "--config-dir", "mine", "--format", form)
        assert status == 2
        assert where in told
        assert "the resolver oc.env" in told
        assert SECRET not in told
    status, told = answered(capfd, "check", "--config-dir", "mine")
    assert status == 2
    assert told.endswith(f"etlrun: 1 fault\n  mine/dataset/pets.yaml:2: dir: found the resolver oc.env; {IN_FILE}\n")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("hydra:\n  searchpath: ['file://${oc.env:SECRET}']\n", "3: hydra.searchpath"),
        ("load: &load {prefetch: '${now:%H}'}\n", "2: load.prefetch"),
        ("trainer:\n  metrics:\n  - ${oc.env:SECRET}\n", "4: trainer.metrics"),
        ("sweep: {seed: '${oc.env:SECRET}'}\n", "2: sweep.seed"),
        ("_self_]\n", "1: defaults.override dataset"),
        ('trainer: {seed: "\\x24{oc.env:SECRET}"}\n', "2: trainer.seed"),
        ('hydra: {searchpath: ["file://$\\\n  {oc.env:SECRET}"]}\n', "2: hydra.searchpath"),
    ],
)
def test_their_place_in_a_config_of_ones_own(
    text: str, where: str, repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = "override dataset: '${oc.env:SECRET}', " if text.startswith("_self_") else "_self_]\n"
    repository.write("mine.yaml", f"defaults: [config, {chosen}{text}")
    status, told = answered(capfd, "check", "--config-dir", "mine")
    assert (status, SECRET in told) == (2, False)
    assert f"\n  mine/mine.yaml:{where}: found the resolver " in told
    status, told = answered(capfd, "diff", "", "mine/mine.yaml", "--config-dir", "mine", "--format", "markdown")
    assert (status, SECRET in told) == (2, False)
    assert f"mine/mine.yaml:{where}: found the resolver " in told


@pytest.mark.parametrize(
    "block",
    ["sweeper: {params: {trainer.seed: '${oc.env:SECRET}'}}", "sweep: {dir: 's3://${oc.env:SECRET}'}"],
    ids=["a parameter", "a folder"],
)
def test_the_plan_of_a_multirun_tells_nothing_of_the_machine(
    block: str, repository: Repository, capfd: pytest.CaptureFixture[str], says: Says
) -> None:
    repository.write("mine.yaml", f"defaults: [config, _self_]\nhydra: {{{block}}}\n")
    status, told = answered(capfd, "plan", "-m", "--config-dir", "mine", "--config-name", "mine")
    assert status == 2
    says(told)


def test_a_folder_named_hydra_holds_none_but_of_hydra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = Repository.small(tmp_path / "hydra")
    monkeypatch.chdir(made.folder)
    monkeypatch.setenv("SECRET", SECRET)
    made.write("dataset/pets.yaml", PETS.format("${oc.env:SECRET}"))
    remedy = 'give it on the command line: dataset.dir="$NAME"\n'
    found = f"dataset.dir: found the resolver oc.env; {EXPECTED}{remedy}"
    assert answered(capfd, "plan", "--config-dir", "mine", "dataset=pets") == (2, f"etlrun: 1 fault\n  {found}")
    status, told = answered(capfd, "check", "--config-dir", "mine")
    assert status == 2
    assert f"mine/dataset/pets.yaml:2: dataset.dir, in dataset=pets: {found[13:]}" in told
    assert SECRET not in told
    elsewhere = Repository.small(tmp_path / "elsewhere")
    monkeypatch.chdir(elsewhere.folder)
    elsewhere.write("dataset/pets.yaml", PETS.format("${oc.env:SECRET}"))  # the same text
    status, told = answered(capfd, "plan", "--config-dir", "mine", "dataset=pets")
    assert (status, f"{elsewhere.folder}/mine/dataset/pets.yaml:2: dir: found the resolver oc.env" in told) == (2, True)


@pytest.mark.parametrize(
    "word",
    ["load.batch_size=${oc.env:SECRET}", "load.batch_size=1,${oc.env:SECRET}", "++load.batch_size=${oc.env:SECRET}"],
)
def test_an_override_is_refused_with_its_key(word: str, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setenv("SECRET", "8")
    says(refusal_of_request(word))


def test_options_of_overrides_are_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    for word in ("dataset=${oc.env:SECRET}", "+dataset@mine=${oc.env:SECRET}"):
        with pytest.raises(Exception, match=r"oc\.env") as caught:
            composed(word)
        assert SECRET not in str(caught.value)


def test_references_and_resolvers_of_the_config_are_accepted() -> None:
    given: dict[str, Any] = {
        "dataset.eval_split=${dataset.split}": "train[:80%]",
        "dataset.eval_split=${oc.select:dataset.nothing,test}": "test",
        "dataset.eval_split=${oc.select:dataset.split}": "train[:80%]",
    }
    assert {word: plan_of(word).spec.dataset.eval_split for word in given} == given


def test_hydras_own_config_may_read_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    assert plan_of("hydra.run.dir=outputs/${oc.env:SECRET}") == plan_of()
    assert "${now:" in (CONF / "config.yaml").read_text()


@pytest.mark.parametrize("text", ["${a}", "${.a}", "${..a[0]}", "a: b", "$HOME", "${", "}", "${a.${b}}", "{a: ${b}}"])
def test_what_is_no_resolver(text: str) -> None:
    assert machine_resolvers(text) == []


def test_all_that_omegaconf_and_hydra_register_is_known() -> None:
    composed()  # Hydra registers its own
    known = ["oc.env", "oc.create", "oc.decode", "now", "hydra", "python_version"]
    assert [name for name in known if not OmegaConf.has_resolver(name)] == []
    assert [name for name in known if machine_resolvers(f"${{{name}:a}}") != [name]] == []


HYDRA = """\
hydra:
  job_logging: {{handlers: {{x: {{(): os.mkdir, path: {marks}/handler}}}}, root: {{handlers: [x]}}}}
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An experiment whose block for Hydra makes folders when it is called, after a revision without it."""
    made = Repository.small(tmp_path / "repository")
    path = made.configs / "experiment" / "small.yaml"
    path.write_text(path.read_text(encoding="utf-8") + HYDRA.format(marks=tmp_path / "marks"), encoding="utf-8")
    (tmp_path / "marks").mkdir()
    monkeypatch.chdir(made.folder)
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "experiment=small"],
        ["plan", "-m", "experiment=small", "load.prefetch=0,1"],
        ["check"],
        ["diff", "main"],
        ["diff", "experiment=small", "experiment=other"],
        ["config", "eject", "experiment=small"],
        ["doctor", "--report", "experiment=small"],
    ],
)
@pytest.mark.usefixtures("mine")
def test_a_command_that_looks_at_configs_calls_nothing(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_as_it_was():
        main([*words, "--config-dir", "mine"])
    assert capsys.readouterr().out
    assert [*(tmp_path / "marks").iterdir()] == []


@pytest.mark.slow
def test_a_run_calls_it(mine: Repository, tmp_path: Path) -> None:
    finish(start(["experiment=small", "trainer=drain", "trainer.epochs=1", "--config-dir", "mine"], mine.folder))
    assert (tmp_path / "marks" / "handler").is_dir()
