"""`etlrun data prepare` and `vocabulary`: write own images as a TFDS dataset, and a vocabulary of own texts."""

import importlib.util
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from etlrun.cli.commands import Answer
from etlrun.config.overrides import typed
from etlrun.config.request import composed
from etlrun.datasets.prepare.check import LISTED, Image, opened
from etlrun.datasets.prepare.options import Options, parsed
from etlrun.datasets.prepare.prepare import WrittenShard, is_training, require_new
from etlrun.datasets.prepare.prepare import prepare as prepare_all
from etlrun.planning.spec import RunSpec, parse
from etlrun.report.doc import Col, Doc, Lines, Table
from etlrun.sources.listing import Listing, notes_on
from etlrun.stages import STAGES
from etlrun.stages.column_text import Tokenize
from etlrun.stages.columns import Columns
from etlrun.stages.rows import Rows
from etlrun.stages.words import UNKNOWN
from etlrun.system.errors import ConfigError, Fault, WorldError, counted, printable, refuse
from etlrun.system.files import appearing
from etlrun.system.loading import pip_install
from etlrun.system.values import grouped

_LEAST_COUNT = 2
"""Least number of words that have a piece."""


def vocabulary(known: Namespace) -> Answer:
    """Write a vocabulary; `EtlrunError` if the config has no tokenizer by pieces, or no text can be read."""
    if importlib.util.find_spec("tokenizers") is None:
        expected = "the one that trains vocabularies"
        raise WorldError("vocabulary", "no package tokenizers", expected, pip_install("text"))
    texts, file = _of_config(parse(composed(known.request), STAGES))
    path = known.out or Path(file)
    pieces = trained(texts, known.size)
    with appearing(path, "--out") as lines:
        lines.writelines(f"{piece}\n" for piece in pieces)
    return Answer(f"{len(pieces):,} pieces of {len(texts):,} texts are in {printable(str(path))}.\n")


def _of_config(spec: RunSpec) -> tuple[list[str], str]:
    """Return the texts of the training split before the one step that tokenizes by pieces, and its file."""
    from etlrun.planning.columns import misnamed
    from etlrun.planning.rows import training_of  # which imports Arrow
    from etlrun.sources.rows.reader import OutputReader

    columns = spec.columns
    found = [
        (output, place, step)
        for output in (columns.outputs if columns is not None and isinstance(spec.dataset, Rows) else ())
        for place, step in enumerate(output.steps)
        if isinstance(step, Tokenize) and step.by == "wordpiece"
    ]
    if len(found) != 1:
        example = "transform.columns={review: {steps: [{tokenize: {by: wordpiece, file: vocab.txt}}, lookup, embed]}}"
        names = ", ".join(of.name for of, _, _ in found)
        what = f"{counted(len(found), 'output')} by pieces: {names}" if found else "none by pieces"
        expected = "one output of a dataset of rows that is tokenized by pieces of words"
        raise ConfigError([Fault(Columns.path, what, expected, f"pass '{example}'")])
    ((output, place, step),) = found
    source, split = training_of(spec)
    features = source.dataset.examples.features
    refuse(misnamed(Columns(outputs=(output,)), features, tuple(source.dataset.target)))
    values = OutputReader(output, {}, source, split).behind(output.steps[:place])
    return [of.decode() for of in values.drop_null().to_pylist()], str(step.file)


def trained(texts: Sequence[str], size: int) -> list[str]:
    """Return pieces of words, `[UNK]` first, the same for the same texts; `WorldError` if `size` is too small."""
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
        raise WorldError("--size", found, expected, f"pass at least {len(alphabet):,}, or standardize the texts")
    model = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    model.normalizer, model.pre_tokenizer = normalizer, parts
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=_LEAST_COUNT, special_tokens=alphabet, show_progress=False
    )
    model.train_from_iterator(texts, trainer)
    places = model.get_vocab()
    return sorted(places, key=lambda piece: places[piece])


def prepare(known: Namespace) -> Answer:
    """Write a source of images as a TFDS dataset; `EtlrunError` with all faults of the arguments or the source."""
    options = parsed({key: value for key, value in vars(known).items() if key not in ("command", "json", "words")})
    require_new(options)
    listing = opened(options)
    from etlrun.run.backend import prepare as quietly  # imports TensorFlow, so only after the source is known

    with quietly(None):
        shards, sizes, broken = prepare_all(options, listing)
        columns = [
            Col("split", lambda of: of[0]),
            Col("examples", lambda of: sum(len(shard.images) for shard in of[1])),
            Col("shards", lambda of: len(of[1])),
            Col("classes", lambda of: len({image.label for shard in of[1] for image in shard.images})),
            Col("MB", lambda of: sum(sizes[shard.file] for shard in of[1]) / 1e6, ",.1f"),
        ]
        last = [("folder", str(options.place)), ("train", _command(options, shards))]
        splits = grouped((shard.split, shard) for shard in shards)
        table = Table([*splits.items()], columns)
        parts = [table, Lines([*_notes(listing, broken), *last])]
        return Answer(Doc(f"The dataset {options.name}", parts, json=lambda: {"splits": table.values, **dict(last)}))


def _notes(source: Listing, broken: Sequence[Image]) -> Iterator[tuple[str, str]]:
    """Yield what the source has that a reader may not expect, and the first images that are left out."""
    yield from (("note", note) for note in notes_on(source))
    if broken:
        texts = [f"{of.path}: {of.reason}" for of in broken[:LISTED]]
        more = ["…"] * (len(broken) > LISTED)
        yield "skipped", "\n".join([f"broken images: {len(broken):,}", *texts, *more])


def _command(options: Options, shards: Sequence[WrittenShard]) -> str:
    names = [*dict.fromkeys(shard.split for shard in shards)]
    train, others = names[0], [name for name in names if not is_training(name)]
    evaluated = next((name for name in others if name.lower().startswith("val")), others[0] if others else "")
    split, eval_split = (train, evaluated) if evaluated != train and evaluated else (f"{train}[:80%]", f"{train}[80%:]")
    words = {
        "dataset.name": options.name,
        "dataset.version": options.version,
        "dataset.data_dir": options.url or str(options.data_dir),
        "dataset.split": split,
        "dataset.eval_split": eval_split,
    }
    return " ".join(["python -m etlrun dataset=tfds", *(typed(f"{key}=", of) for key, of in words.items())])
