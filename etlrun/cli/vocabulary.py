"""`etlrun vocabulary`: train the pieces of words that `tokenize: {by: wordpiece}` takes, on a column or on files."""

from __future__ import annotations

import argparse
import importlib.util
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from etlrun.cli import parsers
from etlrun.config.request import composed, requested
from etlrun.planning.learned import columns_of
from etlrun.planning.spec import RunSpec, parse
from etlrun.stages import STAGES
from etlrun.stages.column_text import Tokenize
from etlrun.stages.columns import Columns, Output
from etlrun.stages.rows import Rows
from etlrun.stages.words import UNKNOWN
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError
from etlrun.system.files import write_atomically
from etlrun.system.terminal import say

_LEAST_COUNT = 2
"""Least number of words that have a piece."""


def main(arguments: list[str]) -> None:
    """Write a vocabulary.

    Raises:
        EtlrunError: The config has no tokenizer by pieces; its rows, or the files, can't be read; or a package is
            missing.
    """
    known, request = requested(parser(), arguments)
    if importlib.util.find_spec("tokenizers") is None:
        found, expected = "no package tokenizers", "the one that trains vocabularies"
        raise WorldError(where="vocabulary", found=found, expected=expected, remedy="pip install 'etlrun[text]'")
    if any("=" not in word for word in request.overrides):
        texts, path = _of_files(request.overrides, known.out), known.out
    else:
        spec = parse(composed(request), STAGES)
        output, place = _tokenized(spec)
        texts = _texts(spec, output, place)
        path = known.out or Path(str(cast("Tokenize", output.steps[place]).file))
    pieces = trained(texts, known.size)
    try:
        write_atomically(path, "".join(f"{piece}\n" for piece in pieces))
    except OSError as error:
        expected = "a file that can be written"
        raise WorldError(
            where=str(path), found=str(error.strerror), expected=expected, remedy="pass another --out"
        ) from error
    say(f"{len(pieces):,} pieces of {len(texts):,} texts are in {path}.")


def _tokenized(spec: RunSpec) -> tuple[Output, int]:
    """Return the output of a config that is tokenized by pieces, and the place of that step."""
    columns = columns_of(spec)
    found = [
        (output, place)
        for output in (columns.outputs if columns is not None and isinstance(spec.dataset, Rows) else ())
        for place, step in enumerate(output.steps)
        if isinstance(step, Tokenize) and step.by == "wordpiece"
    ]
    if len(found) == 1:
        return found[0]
    example = "transform.columns={review: {steps: [{tokenize: {by: wordpiece, file: vocab.txt}}, lookup, embed]}}"
    what = f"{len(found)} outputs by pieces: {', '.join(of.name for of, _ in found)}" if found else "none by pieces"
    expected = "one output of a dataset of rows that is tokenized by pieces of words"
    raise ConfigError([Fault(where=Columns.path, found=what, expected=expected, remedy=f"pass '{example}'")])


def _texts(spec: RunSpec, output: Output, place: int) -> list[str]:
    """Return the texts of the training split before the step at that place; raise `EtlrunError` if there are none."""
    from etlrun.planning.columns import misnamed
    from etlrun.planning.rows import training_of  # which imports Arrow
    from etlrun.sources.rows.reader import Reader

    source, split = training_of(spec)
    features = source.dataset.examples.features
    if faults := [*misnamed(Columns(outputs=(output,)), features, tuple(source.dataset.target))]:
        raise ConfigError(faults)
    values = Reader(output, {}, source, split).behind(output.steps[:place])
    return [of.decode() for of in values.drop_null().to_pylist()]


def _of_files(words: Sequence[str], out: Path | None) -> list[str]:
    """Return the texts of files, which have one in each line, in Unicode's NFC; raise `EtlrunError` with all faults."""
    from etlrun.sources.rows.lines import encoding_fault, format_fault, opened  # which imports Arrow

    texts, faults = list[str](), list[Fault]()
    if out is None:
        expected = "the file to write, which no config names"
        faults.append(Fault(where="--out", found="nothing", expected=expected, remedy="pass --out vocab.txt"))
    for path in words:
        try:
            fault = format_fault(path) or encoding_fault(path, "")
            if fault is not None:
                faults.append(fault)
                continue
            with opened(path) as file:
                text = file.read().decode("utf-8-sig")
            texts += filter(str.strip, unicodedata.normalize("NFC", text).split("\n"))
        except OSError as error:
            expected = "files of text alone, or overrides KEY=VALUE alone"
            remedy = "check the path, or the override"
            faults.append(Fault(where=path, found=error.strerror or str(error), expected=expected, remedy=remedy))
    if faults:
        raise EtlrunError(faults)
    return texts


def trained(texts: Sequence[str], size: int) -> list[str]:
    """Return pieces of the words in texts, `[UNK]` first and `size` at most; the same for the same texts.

    Raises:
        WorldError: The texts have more characters.
    """
    from tokenizers import Tokenizer, models, trainers
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    normalizer, parts = BertNormalizer(lowercase=False, strip_accents=False, clean_text=False), BertPreTokenizer()

    def words_of(text: str) -> Iterator[str]:
        return (word for word, _ in parts.pre_tokenize_str(normalizer.normalize_str(text)))

    words = Counter(word for text in texts for word in words_of(text))
    whole = sorted({character for word in words for character in word})
    later = sorted({f"##{character}" for word in words for character in word[1:]})
    alphabet = [UNKNOWN, *whole, *later]  # given in order, since the trainer has it in a random one
    if len(alphabet) > size:
        found, expected = f"{size:,} for {len(alphabet):,} characters", "a larger vocabulary"
        remedy = f"pass at least {len(alphabet):,}, or standardize the texts"
        raise WorldError(where="--size", found=found, expected=expected, remedy=remedy)
    model = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    model.normalizer, model.pre_tokenizer = normalizer, parts
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=_LEAST_COUNT, special_tokens=alphabet, show_progress=False
    )
    model.train_from_iterator(texts, trainer)
    places = model.get_vocab()
    return sorted(places, key=lambda piece: places[piece])


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_config(
        "vocabulary",
        "Train the vocabulary of a config's `tokenize: {by: wordpiece}` on the texts of its training "
        "split, as the steps before it leave them, and write it; or on files with a text in each line, as they are: "
        "etlrun vocabulary --size 8000 --out vocab.txt FILE ...",
    )
    parser.add_argument("--size", type=_positive, required=True, metavar="N", help="maximum number of pieces")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write; default: the one that the config names"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found {text}; expected a positive integer")
    return int(text)
