"""Config files drawn at random: what `etlrun migrate` makes of them means the same."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etlrun.cli import main
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.system.deprecated import DEPRECATIONS
from etlrun.system.respelled import old_keys, package_of, respelled
from tests.own_configs import write

NAMES = ("transform", "decode", "scaled", "logger", "experiment", "load", "a: b", "'q'")
BLOCKS = st.recursive(
    st.booleans() | st.text(max_size=8) | st.integers(),
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=20,
)


def _renamed(value: Any, path: tuple[str, ...] = ()) -> Any:
    """What is expected of nested values."""
    if isinstance(value, list):
        return [_renamed(item, (*path, "an item")) for item in value]
    if not isinstance(value, dict):
        return value
    names = {of.old: of.names[1] for of in DEPRECATIONS}
    return {names.get(".".join((*path, key)), key): _renamed(item, (*path, key)) for key, item in value.items()}


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(NAMES), BLOCKS), st.sampled_from(["block", "flow", "both"]))
def test_any_file_means_the_same_but_for_the_names(config: dict[str, Any], style: str) -> None:
    flow = {"block": False, "flow": True, "both": None}[style]
    text = yaml.safe_dump(config, allow_unicode=True, default_flow_style=flow, width=60).encode()
    now = respelled(text, "")
    assert yaml.safe_load(now) == _renamed(yaml.safe_load(text))
    assert old_keys(now, "") == ()
    assert len(now.splitlines()) == len(text.splitlines())


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str, str]:
    """A config file with an old key: its place, its text, and the override that chooses it."""
    flag = draw(st.sampled_from(["true", "false", "'${transform.deterministic}'"]))
    key = draw(st.sampled_from(["scaled", '"scaled"', "'scaled'", "&key scaled", "!!str scaled"]))
    tail, blank = draw(st.sampled_from(["", "  # a tail: scaled"])), draw(st.sampled_from([" ", "   "]))
    lines = [f"{key}:{blank}{flag}{tail}"]
    if draw(st.booleans()):
        lines.insert(draw(st.integers(0, 1)), "library: turbo")
    place, head, path = draw(
        st.sampled_from(
            [
                ("experiment", "# @package _global_\n", ["transform", "decode"]),
                ("experiment", "# @package transform\n", ["decode"]),
                ("experiment", "#  @package transform.decode\n", []),
                ("transform", "defaults: [small_64, _self_]\n", ["decode"]),
            ]
        )
    )
    text = head + "".join(f"{'  ' * depth}{name}:\n" for depth, name in enumerate(path))
    return f"{place}/drawn.yaml", text + "".join(f"{'  ' * len(path)}{line}\n" for line in lines), f"{place}=drawn"


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files())
def test_plans_of_drawn_files_are_the_same_before_and_after(tmp_path: Path, drawn: tuple[str, str, str]) -> None:
    name, text, word = drawn
    folder = tmp_path / "own"
    shutil.rmtree(folder, ignore_errors=True)
    write(folder / name, text)
    before = grid.resolve(Request(overrides=[word], config_dir=str(folder)), STAGES)
    main.main(["migrate", str(folder)])
    now = (folder / name).read_text()
    assert now.replace("fast", "scaled") == text
    assert old_keys(now.encode(), package_of(Path(name).parent.name, now)) == ()
    after = grid.resolve(Request(overrides=[word], config_dir=str(folder)), STAGES)
    assert (after.config, after.plan.fingerprint) == (before.config, before.plan.fingerprint)
    assert after.config["transform"]["decode"].keys() == {"library", "fast"}
