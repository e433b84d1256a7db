"""Vectors of words from a file, for the vocabularies that columns have learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from etlrun.sources.content import sha256_of_all
from etlrun.sources.records import known, stamp_of
from etlrun.sources.rows.fitting import fault_of
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_numbers import UnfitColumnError
from etlrun.stages.columns import Output, UnfitStepError
from etlrun.stages.flow import UnfitError
from etlrun.stages.words import vectors_in, vocabulary_of
from etlrun.system.errors import ConfigError, Fault

Shares = tuple[tuple[str, str], ...]


def with_weights(outputs: Sequence[Output]) -> tuple[tuple[Output, ...], Shares]:
    """Return outputs that know what the files of their vectors contain, and the share of words that have one.

    Raises:
        ConfigError: All files that have no vectors for a vocabulary.
    """
    faults: list[Fault] = []
    made, shares = [], []
    for output in outputs:
        if output.weights is None:
            made.append(output)
            continue
        place, step = len(output.steps) - 1, cast("Embed", output.steps[-1])
        try:
            found = len(vectors_of(output)["vectors"])
        except UnfitError as unfit:
            faults.append(fault_of(output, UnfitStepError(place, unfit, "")))
            continue
        files = [path for path in (output.weights, step.words) if path]
        contents = known({path: stamp_of(path) for path in files}, sha256_of_all)
        content = "-".join((contents[path] or b"").hex() for path in files)
        made.append(dataclasses.replace(output, steps=(*output.steps[:-1], step.replace(content=content))))
        count = len(_lookup(output).values or ())
        shares.append((output.name, f"{found / count:.1%} of {count:,} words have a vector of {output.weights}"))
    if faults:
        raise ConfigError(faults)
    return tuple(made), tuple(shares)


def require_unchanged(outputs: Sequence[Output]) -> None:
    """Raise `ConfigError` for files of vectors that have been changed since the run was planned, or can't be read."""
    changed = [of for of, now in zip(outputs, with_weights(outputs)[0], strict=True) if now != of]
    if changed:
        found, remedy = "a file that was changed since the run was planned", "restore it, or start a new run"
        raise ConfigError([Fault(str(of.weights), found, "one that stays", remedy) for of in changed])


def vectors_of(output: Output) -> dict[str, Any]:
    """Return the arguments of `set_vectors` for an output that ends with an embedding whose vectors a file has.

    Raises:
        UnfitError: It has none for the vocabulary, or there is no vocabulary of texts.
    """
    given, others = arguments_of_vectors(output)
    try:
        return {"vectors": vectors_in(str(output.weights), **given), **others}
    except (OSError, ValueError) as error:
        raise cast("Embed", output.steps[-1]).unfit(error) from error


def arguments_of_vectors(output: Output) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `vectors_in` beside the path, and those of `set_vectors` beside the vectors."""
    step, lookup = cast("Embed", output.steps[-1]), _lookup(output)
    listed = None if step.words is None else [*vocabulary_of(step.words)]
    words = {"listed": listed, "words": [str(value) for value in lookup.values or ()], "dimension": step.dimension}
    first = (lookup.oov if isinstance(lookup.oov, int) else 0) + bool(step.padding)
    return words, {"name": output.name, "first": first, "trainable": step.trainable}


def _lookup(output: Output) -> Lookup:
    found = next((step for step in reversed(output.steps) if isinstance(step, Lookup)), None)
    if found is None or not isinstance((found.values or (None,))[0], str):
        expected, remedy = "a vocabulary of texts before vectors of words", "put `lookup` before it"
        raise UnfitColumnError("embed with weights", expected, remedy)
    return found
