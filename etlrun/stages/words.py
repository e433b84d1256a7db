"""Files of words: vocabularies, with a value in each line."""

import functools
import importlib.util
import unicodedata
from pathlib import Path
from typing import Any

from etlrun.stages.flow import UnfitError
from etlrun.stages.lazy import tf
from etlrun.system.loading import pip_install

UNKNOWN = "[UNK]"
"""The piece that stands for an unknown word."""


def vocabulary_of(path: str, otherwise: str = "") -> tuple[str, ...]:
    """Return the values of a file of UTF-8, one in each line, in Unicode's NFC, as the texts of tables are.

    A byte order mark before the first line is none of it, and lines may end as on Windows. `otherwise` is what to do
    if there is no such file. Raises `UnfitError` if it can't be read, or if a line is empty, is not UTF-8, has blanks
    around it, or is there twice.
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

    Raises `UnfitError` if it is no vocabulary, or lacks the token for unknown words, or if TensorFlow Text is missing.
    """
    if importlib.util.find_spec("tensorflow_text") is None:
        raise UnfitError("the one that tokenizes by pieces", pip_install("text"), "no package tensorflow-text")
    found = vocabulary_of(path, "; or pass the config to etlrun data vocabulary --size 8000, which writes it")
    if UNKNOWN not in found:
        expected = f"the piece {UNKNOWN}, which stands for all other words"
        raise UnfitError(expected, "add the line", f"no line {UNKNOWN} of {path}")
    return found


@functools.lru_cache(maxsize=4)
def wordpieces(vocabulary: tuple[str, ...]) -> Any:
    """Return TensorFlow Text's tokenizer of a vocabulary, which takes a second to make."""
    import tensorflow_text

    with tf.init_scope():  # to be used in any graph
        return tensorflow_text.FastWordpieceTokenizer([*vocabulary], token_out_type=tf.string)
