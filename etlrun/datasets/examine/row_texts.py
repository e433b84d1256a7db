"""Texts of many words in figures: their lengths and scripts; and findings of those that are empty, or equal."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.datasets.examine.finding import Finding
from etlrun.datasets.examine.row_figures import Reader
from etlrun.sources.rows.fitting import is_prose
from etlrun.sources.rows.leaks import names_examined

_READ_FOR_SCRIPTS = 10_000
"""Texts of a sample whose letters are counted."""
_LEAST_SHARE = 0.001


@dataclass(frozen=True, kw_only=True)
class TextFigures:
    """A column of texts in a split.

    Attributes:
        name: Its name.
        rows: Number of rows.
        empty: Rows whose text is missing, or has nothing but blanks.
        words: Words between blanks in the median text, and in the longest one.
        characters: Characters of the median text, and of the longest one.
        scripts: Share of the letters of each script, the most frequent first, in at most 10,000 texts.
    """

    name: str
    rows: int
    empty: int
    words: tuple[int, int]
    characters: tuple[int, int]
    scripts: dict[str, float]

    @property
    def listed(self) -> str:
        """Scripts in a line."""
        return ", ".join(f"{name} {share:.1%}" for name, share in self.scripts.items())


def texts_of(reader: Reader, tokenized: Sequence[str]) -> tuple[TextFigures, ...]:
    """Return the figures of the texts of many words in a split, and of those that are `tokenized`."""
    kept = reader.source.kept
    names = [name for name in names_examined(reader.source) if kept.known.columns[name].type == "text"]
    return tuple(
        _figures(reader, name)
        for name in names
        if name in tokenized or is_prose(kept.known.columns[name], reader.sample(name))
    )


def _figures(reader: Reader, name: str) -> TextFigures:
    words, characters = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for _, values in reader.batches(name):
        texts = values.drop_null().cast(pa.large_string())
        words.append(pc.count_substring_regex(texts, r"\S+").to_numpy())
        characters.append(pc.utf8_length(texts).to_numpy())
    counts = np.concatenate(words)
    return TextFigures(
        name=name,
        rows=len(reader.rows),
        empty=len(reader.rows) - int(np.count_nonzero(counts)),
        words=_ends(counts),
        characters=_ends(np.concatenate(characters)),
        scripts=_scripts(reader.sample(name).drop_null()),
    )


def _ends(counts: np.ndarray) -> tuple[int, int]:
    return (int(np.median(counts)), int(counts.max())) if len(counts) else (0, 0)


def _scripts(texts: pa.Array) -> dict[str, float]:
    """Return the share of the letters of each script, by the first word of their names in Unicode."""
    some = np.linspace(0, max(len(texts) - 1, 0), min(len(texts), _READ_FOR_SCRIPTS)).astype(np.int64)
    letters = Counter("".join(texts.take(pa.array(some)).cast(pa.large_string()).to_pylist()))
    found: Counter[str] = Counter()
    for letter, count in letters.items():
        if letter.isalpha():
            name = unicodedata.name(letter, "unnamed").split()[0]
            found[name if name == "CJK" else name.capitalize()] += count
    return {name: share for name, count in found.most_common() if (share := count / found.total()) >= _LEAST_SHARE}


def of_empty(splits: Sequence[tuple[str, Sequence[TextFigures]]]) -> Iterator[Finding]:
    """Yield the findings of texts that are empty, in splits of these names."""
    for place, of in enumerate(splits[0][1]):
        every = [(name, texts[place]) for name, texts in splits if place < len(texts)]
        if any(each.empty for _, each in every):
            shares = [
                f"{each.empty:,} of {each.rows:,} rows of {name} ({each.empty / each.rows:.1%})" for name, each in every
            ]
            remedy = "leave these rows out, or see what they lack: a model can tell nothing from them"
            yield Finding(f"{of.name} has no word in {' and in '.join(shares)}", remedy)
