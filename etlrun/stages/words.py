"""Files of words: vocabularies, with a value in each line, and vectors of words, with which a model begins to learn."""

from __future__ import annotations

import functools
import importlib.util
import unicodedata
from pathlib import Path
from typing import Any

from etlrun.stages.flow import UnfitError
from etlrun.stages.lazy import keras, np, tf

UNKNOWN = "[UNK]"
"""The piece that stands for an unknown word."""


def vocabulary_of(path: str, otherwise: str = "") -> tuple[str, ...]:
    """Return the values of a file of UTF-8, one in each line, in Unicode's NFC, as the texts of tables are.

    A byte order mark before the first line is none of it, and lines may end as on Windows. `otherwise` is what to do
    if there is no such file.

    Raises:
        UnfitError: It can't be read; a line is empty, is not UTF-8, has blanks around it, or is there twice.
    """
    try:
        content = Path(path).expanduser().read_bytes().decode("utf-8-sig")
    except OSError as error:
        remedy = f"correct the path; relative ones start in the folder of the command{otherwise}"
        raise UnfitError("a text file with a value in each line", remedy, f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        place = error.object.count(b"\n", 0, error.start) + 1
        found = f"{path}, line {place:,}: {error.object[error.start : error.end]!r}"
        raise UnfitError("text in UTF-8", "write it in UTF-8", found) from error
    texts = [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")]
    lines, there = dict[str, int](), {*texts}
    for number, text in enumerate(texts, 1):
        composed = unicodedata.normalize("NFC", text)
        line = text if composed in there else composed
        if not line or line != line.strip():
            remedy = "remove the blanks, or the line, or list the values in `values`"
            raise UnfitError("a value without blanks around it", remedy, f"{path}, line {number:,}: {line!r}")
        if (before := lines.setdefault(line, number)) != number:
            twice = f"{line!r} in lines {before:,} and {number:,} of {path}"
            raise UnfitError("each value in one line", "remove one of the two", twice)
    return tuple(lines)


def pieces_of(path: str) -> tuple[str, ...]:
    """Return the pieces of words that a file has, in its order.

    Raises:
        UnfitError: The file is no vocabulary, as above, or has no token for unknown words; or TensorFlow Text,
            which takes it, is not installed.
    """
    if importlib.util.find_spec("tensorflow_text") is None:
        raise UnfitError("the one that tokenizes by pieces", "pip install 'etlrun[text]'", "no package tensorflow-text")
    found = vocabulary_of(path, "; or pass the config to etlrun vocabulary --size 8000, which writes it")
    if UNKNOWN not in found:
        expected = f"the piece {UNKNOWN}, which stands for words that it has no pieces of"
        raise UnfitError(expected, "add the line", f"no line {UNKNOWN} of {path}")
    return found


@functools.lru_cache(maxsize=4)
def wordpieces(vocabulary: tuple[str, ...]) -> Any:
    """Return TensorFlow Text's tokenizer of a vocabulary, which takes a second to make."""
    import tensorflow_text

    with tf.init_scope():  # to be used in any graph
        return tensorflow_text.FastWordpieceTokenizer([*vocabulary], token_out_type=tf.string)


def dimension_in(path: str) -> int:
    """Return the dimension of the vectors of a file; raise `OSError` or `ValueError` if it has none."""
    if path.endswith(".npy"):
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
        if len(shape) != 2:  # noqa: PLR2004 - rows of numbers
            raise ValueError(f"an array of shape {shape}")
        return int(shape[1])
    with open(path, "rb") as file:  # noqa: PTH123 - which programs contain
        first = file.readline().removeprefix(b"\xef\xbb\xbf").split()  # UTF-8's byte order mark
        first = file.readline().split() if len(first) == 2 and first[0].isdigit() and first[1].isdigit() else first  # noqa: PLR2004
    if len(first) < 2:  # noqa: PLR2004 - a word and a number
        raise ValueError("line 1: no word with numbers behind it")
    return len(first) - 1


def vectors_in(path: str, *, listed: list[str] | None, words: list[str], dimension: int) -> dict[int, Any]:
    """Return the vectors, float32 (dimension,), of those of some words that a file has, by the places of the words.

    It is an `.npy` with a row for each word that is `listed`; or text with a word and its numbers in each line, as
    GloVe and word2vec write it. Raises `OSError`, or `ValueError` with the line, if it is no such file.
    """
    places = {word: place for place, word in enumerate(words)}
    if (found := dimension_in(path)) != dimension:
        raise ValueError(f"line 1: {found} numbers" if listed is None else f"an array of {found} numbers in each row")
    if listed is None:
        return lines_of_vectors(path, places, dimension)
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(rows) != len(listed):
        raise ValueError(f"an array of {len(rows)} rows for {len(listed)} words")
    return {places[word]: np.asarray(rows[row], "float32") for row, word in enumerate(listed) if word in places}


def lines_of_vectors(path: str, places: dict[str, int], dimension: int) -> dict[int, Any]:
    """Return the vector of each of some words that a file of text has, in the first line of it, by its place."""
    found: dict[int, Any] = {}
    with open(path, "rb") as file:  # noqa: PTH123 - which programs contain
        for number, line in enumerate(file, 1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line  # noqa: PLW2901
            word, *values = line.rstrip().rsplit(b" ", dimension)
            if number == 1 and len(values) < dimension and len(line.split()) == 2:  # noqa: PLR2004 - word2vec's head
                continue
            if values and b" " in word:  # a word may have blanks, but no further number behind it
                values = [word.rpartition(b" ")[2], *values] if is_number(word.rpartition(b" ")[2]) else values
            numbers = np.array([float(value) for value in values if is_number(value)], "float32")
            if len(numbers) != dimension or len(values) != dimension or not np.isfinite(numbers).all():
                shown = line.rstrip()[:40].decode(errors="replace")
                raise ValueError(f"line {number}: {shown!r} is no word with {dimension} numbers behind it")
            place = places.get(word.decode(errors="replace"))
            if place is not None:
                found.setdefault(place, numbers)
    return found


def is_number(text: bytes) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def set_vectors(model: Any, *, name: str, vectors: dict[int, Any], first: int, trainable: bool) -> None:
    """Give the embedding of an input of a model some vectors, by their indices from `first` on."""
    embeddings = (layer for layer in model.layers if isinstance(layer, keras.layers.Embedding))
    layer = next(layer for layer in embeddings if layer.input.name == name)
    values = np.array(layer.get_weights()[0])
    for place, vector in vectors.items():
        values[first + place] = vector
    layer.set_weights([values])
    layer.trainable = trainable
