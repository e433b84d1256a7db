"""Files of words: vocabularies, with a value in each line."""

from __future__ import annotations

import functools
import importlib.util
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etlrun.stages.column_step import UnfitColumnError
from etlrun.stages.lazy import tf

UNKNOWN = "[UNK]"
"""The piece that stands for an unknown word."""
_WRITE = "write it again"
_MARK = b"\xef\xbb\xbf"
"""UTF-8's byte order mark."""


def vocabulary_of(path: str, otherwise: str = "") -> tuple[str, ...]:
    """Return the values of a file of UTF-8, one in each line, in Unicode's NFC, as the texts of tables are.

    A byte order mark before the first line is none of it, and lines may end as on Windows. `otherwise` is what to do
    if there is no such file.

    Raises:
        UnfitColumnError: It can't be read; a line is empty, is not UTF-8, has blanks around it, or is there twice.
    """
    lines = dict[str, int]()
    for number, line in _lines(path, otherwise):
        if not line.strip():
            raise _unfit(f"{path}, line {number:,}: no value", "a value in each line", "remove the line")
        if line != line.strip():
            remedy = "remove the blanks, or list the values in `values`"
            raise _unfit(f"{path}, line {number:,}: {line!r}", "a value without blanks around it", remedy)
        if (before := lines.setdefault(line, number)) != number:
            raise _unfit(f"{line!r} in lines {before:,} and {number:,} of {path}", "each value in one line", _WRITE)
    if not lines:
        raise _unfit(f"no line of {path}", "each value in one line", _WRITE)
    return tuple(lines)


def pieces_of(path: str) -> tuple[str, ...]:
    """Return the pieces of words that a file has, in its order.

    Raises:
        UnfitColumnError: The file is no vocabulary, as above, or has no token for unknown words; or TensorFlow Text,
            which takes it, is not installed.
    """
    if importlib.util.find_spec("tensorflow_text") is None:
        raise _unfit("no package tensorflow-text", "the one that tokenizes by pieces", "pip install 'etlrun[text]'")
    found = vocabulary_of(path, "; or pass the config to etlrun vocabulary --size 8000, which writes it")
    if UNKNOWN not in found:
        expected = f"the piece {UNKNOWN}, which stands for words that it has no pieces of"
        raise _unfit(f"no line {UNKNOWN} of {path}", expected, "add the line")
    return found


@functools.lru_cache(maxsize=4)
def wordpieces(vocabulary: tuple[str, ...]) -> Any:
    """Return TensorFlow Text's tokenizer of a vocabulary, which takes a second to make."""
    import tensorflow_text

    with tf.init_scope():  # to be used in any graph
        return tensorflow_text.FastWordpieceTokenizer([*vocabulary], token_out_type=tf.string)


def _lines(path: str, otherwise: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line, from 1, and its text."""
    try:
        data = Path(path).expanduser().read_bytes().removeprefix(_MARK)
    except OSError as error:
        remedy = f"correct the path; relative ones start in the folder of the command{otherwise}"
        expected = "a text file with a value in each line"
        raise _unfit(f"{path}: {error.strerror}", expected, remedy) from error
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    texts = list[str]()
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, 1):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError as error:
            raise _unfit(f"{path}, line {number:,}: {line!r}", "text in UTF-8", "write it in UTF-8") from error
    there = set(texts)
    for number, text in enumerate(texts, 1):
        composed = unicodedata.normalize("NFC", text)
        yield number, text if composed in there else composed


def _unfit(found: str, expected: str, remedy: str) -> UnfitColumnError:
    return UnfitColumnError(found, expected, remedy)
