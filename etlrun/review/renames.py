"""Experiments and options that have another name on the new side of a review."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import yaml

from etlrun.planning.plan import Plan
from etlrun.planning.unused import leaves
from etlrun.review.difference import compare
from etlrun.review.sides import Side

_LEAST = 0.5
"""Least share of equal lines or values of a file that is taken for another one under another name, as in git."""
_OF_ALL = (b"# @package", b"defaults:", b"- _self_")
"""What lines of any experiment begin with."""


def renames(old: Side, new: Side, names: Sequence[str]) -> dict[str, str]:
    """Return the old names of those with the plan of one that is gone, or half of the lines or values of its file."""
    gone = {name: old.variants[name].plan for name in names if name not in new.variants}
    come = {name: plan for name in names if name not in old.variants and (plan := new.variants[name].plan)}
    found: dict[str, str] = {}
    for name, plan in come.items():
        left = [was for was in gone if was not in found.values() and _group(was) == _group(name)]
        shares = {was: 1 if _is_same(gone[was], plan) else _share(old, was, new, name) for was in left}
        best = max(left, key=lambda was: shares[was], default="")
        if best and shares[best] >= _LEAST:
            found[name] = best
    return found


def _group(name: str) -> str:
    return name.partition("=")[0] if "=" in name else ""


def _is_same(old: Plan | None, new: Plan) -> bool:
    return old is not None and old.fingerprint == new.fingerprint and not compare(old, new).differences


def _share(old: Side, was: str, new: Side, name: str) -> float:
    """Return the share of equal lines of the files of two experiments or options, or that of equal values if larger."""
    texts = _text(old, was), _text(new, name)
    lines = [
        [line for line in map(bytes.strip, text.splitlines()) if line and not line.startswith(_OF_ALL)]
        for text in texts
    ]
    share = difflib.SequenceMatcher(a=lines[0], b=lines[1], autojunk=False).ratio()
    if old.variants[was].plan is None:
        return share
    before, after = map(_values, texts)
    return max(share, 2 * len(before & after) / max(1, len(before) + len(after)))


def _values(text: bytes) -> set[str]:
    """Return what a file sets and what its defaults list has, however it is written."""
    found = yaml.safe_load(text) or {}
    names = {str(of) for of in found.pop("defaults", None) or () if of != "_self_"}
    return names | {f"{key}={value}" for key, value in leaves("", found)}


def _text(side: Side, name: str) -> bytes:
    end = f"/{name.replace('=', '/') if '=' in name else f'experiment/{name}'}.yaml"
    return next((side.files[file] for file in side.variants[name].files if f"/{file}".endswith(end)), b"")
