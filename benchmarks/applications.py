"""Compares what plans know of the image models of `keras.applications` with Keras itself.

python -m benchmarks.applications [NAME...] [--output benchmarks/results/applications.md]

Each model is built without weights and without its top at its smallest size, refuses a pixel less, is deserialised
from its config to the same network, and loads the weights that `save_weights` has written, which the application before
it in the table does not. What ImageNet weights add to the network is seen without downloading them. Takes 10 minutes
and 6 GB.
"""

from __future__ import annotations

import argparse
import operator
import sys
import tempfile
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import keras
import numpy as np

from etlrun.stages.model import APPLICATIONS, Preprocessing

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype("float32")


def built(name: str, side: int, weights: str | None = None) -> keras.Model:
    """Return the network of a run on images of `side` x `side` pixels."""
    network: Any = getattr(keras.applications, name)
    return network(input_shape=(side, side, 3), include_top=False, weights=weights, pooling="avg")


def module_of(name: str) -> Any:
    """Return the public module of an application, which has its `preprocess_input`."""
    return import_module(getattr(keras.applications, name).__module__.replace("keras.src.", "keras."))


def range_of(name: str) -> tuple[float, float]:
    """Return the smallest and the largest value that Keras's preprocessing makes of pixels in [0, 255]."""
    ends = [module_of(name).preprocess_input(np.full((1, 1, 1, 3), end, "float32")) for end in (0.0, 255.0)]
    return float(ends[0].min()), float(ends[1].max())


def smallest_of(name: str, side: int) -> int:
    """Return `side` if Keras accepts it but no smaller one, else 0."""
    with suppress(ValueError):
        built(name, side - 1)
        return 0
    return side


def has(network: keras.Model, kind: type[keras.Layer]) -> bool:
    """Return whether one of its layers is of that type."""
    return any(isinstance(layer, kind) for layer in network.layers)


def seeds_of(network: keras.Model) -> list[Any]:
    """Return the states of its random numbers."""
    return [variable for variable in network.variables if variable.name == "seed_generator_state"]


def entries(network: keras.Model, last: int) -> int:
    """Return of how many layers before them the `last` layers take outputs: a block takes one, a cell of NASNet two."""
    before = {layer.name for layer in network.layers[:-last]}
    nodes = [node for layer in network.layers[-last:] for node in layer._inbound_nodes]  # noqa: SLF001 - no public way
    inputs = {of._keras_history.operation.name for node in nodes for of in node.input_tensors}  # noqa: SLF001
    return len(inputs & before)


def faults(name: str, network: keras.Model) -> list[str]:
    """Return in what the table differs from a network of Keras."""
    known, found = APPLICATIONS[name], []
    if network.output_shape != (None, known.features):
        found.append(f"features {network.output_shape}")
    if smallest_of(name, known.smallest) != known.smallest:
        found.append("smallest")
    if has(network, keras.layers.BatchNormalization) != known.has_batch_norms:
        found.append("batch norms")
    if bool(seeds_of(network)) != known.has_dropout:
        found.append("dropout")
    if not np.allclose(range_of(name), (known.preprocessing.low, known.preprocessing.high)):
        found.append(f"range {range_of(name)}")
    if len(network.layers) != known.layers:
        found.append(f"layers {len(network.layers)}")
    if entries(network, known.last_block) != (2 if name.startswith("NASNet") else 1):
        found.append("last block")
    return found


def is_deserialised(network: keras.Model) -> bool:
    """Return whether its saved config makes the same layers and weights."""
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(network))
    layers = ([(type(layer), layer.name) for layer in of.layers] for of in (network, again))
    shapes = ([variable.shape for variable in of.weights] for of in (network, again))
    return bool(operator.eq(*layers) and operator.eq(*shapes))


def loads_weights(name: str, network: keras.Model, folder: Path) -> tuple[bool, list[str]]:
    """Return whether a file of its weights is loaded, and which applications beside it in the table load it, too."""
    path, side, names = folder / "own.weights.h5", APPLICATIONS[name].smallest, [*APPLICATIONS]
    network.save_weights(path)
    is_same = all(map(np.array_equal, network.get_weights(), built(name, side, str(path)).get_weights()))
    taken = []
    place = names.index(name)
    for other in names[max(place - 1, 0) : place]:
        with suppress(Exception):  # Keras and HDF5 may raise anything
            built(other, APPLICATIONS[other].smallest, str(path))
            taken.append(other)
    return is_same, taken


def shown(preprocessing: Preprocessing) -> str:
    """Return the range and Keras's name of a preprocessing."""
    return f"{preprocessing.mode} | [{preprocessing.low:.4g}, {preprocessing.high:.4g}]"


def row(name: str, folder: Path) -> tuple[str, bool]:
    """Return a row of the table, and whether all of it is right."""
    known = APPLICATIONS[name]
    network = built(name, known.smallest)
    wrong, is_same = faults(name, network), is_deserialised(network)
    is_loaded, taken = loads_weights(name, network, folder)
    parameters = network.count_params()
    keras.backend.clear_session()
    cells = (name, known.smallest, shown(known.preprocessing), known.features, f"{parameters:,}")
    checks = (", ".join(wrong) or "yes", *("yes" if of else "no" for of in (is_same, is_loaded)), ", ".join(taken))
    is_right = not wrong and is_same and is_loaded and not taken
    return f"| {' | '.join(map(str, (*cells, *checks)))} |", is_right


def main() -> int:
    """Print the table, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*APPLICATIONS])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # Keras's of sizes that ImageNet's weights were not trained with
    names = {name for name in dir(keras.applications) if name[0].isupper()}
    head = f"`python -m benchmarks.applications` with Keras {keras.__version__}, on random weights"
    columns = "model | smallest side | mode | range | features | parameters | as Keras | deserialised | own weights"
    lines = [head, "", f"| {columns} | loaded by the one before |", "|---" * 10 + "|"]
    print(*lines, sep="\n")
    is_right = names == set(APPLICATIONS)
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as folder:
            line, is_row_right = row(name, Path(folder))
        print(line, flush=True)
        lines.append(line)
        is_right = is_right and is_row_right
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
