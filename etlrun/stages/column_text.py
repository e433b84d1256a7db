"""Steps on text: from strings to sequences of tokens, and from sequences to vectors of all categories."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from etlrun.stages.base import Data, OptionalText, Positive
from etlrun.stages.column_categories import OneHot
from etlrun.stages.column_numbers import ColumnStep, Learned
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.lazy import np, pa, pc, tf
from etlrun.stages.paths import OptionalPath
from etlrun.stages.words import pieces_of, wordpieces
from etlrun.system.values import frozen


@frozen
class StandardizeText(ColumnStep):
    """Text in one form, as Keras's `TextVectorization` has it: letters outside of ASCII keep their case.

    Attributes:
        to: `lower` for A to Z in lower case, `lower_and_strip_punctuation` without ASCII's punctuation, too, and `none`
            for the text as it is.
    """

    name = "standardize_text"
    main = "to"

    to: Data[Literal["lower_and_strip_punctuation", "lower", "none"]]

    @staticmethod
    def op(found: tf.Tensor, *, to: str) -> tf.Tensor:
        """Return texts of the same shape."""
        if to != "none":
            found = tf.strings.lower(found)
        if to == "lower_and_strip_punctuation":
            found = tf.strings.regex_replace(found, r"[!\"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\']", "")
        return found

    @property
    def text(self) -> str:
        return super().text if self.to == "none" else f"{super().text} (of ASCII: other letters keep their case)"

    def gives(self, incoming: Feature) -> Feature:
        return _text(incoming)


@frozen
class Tokenize(ColumnStep):
    r"""The tokens of a text, in order; none of a missing one.

    Attributes:
        by: `whitespace` separates tokens, or `regex` by `pattern`; `characters` are tokens each; `wordpiece` splits
            words into pieces of a vocabulary, the longest first, as BERT does.
        pattern: Regular expression (RE2) of what is between two tokens, such as `\W+`; only with `regex`.
        file: File of UTF-8 text with a piece in each line, `[UNK]` among them, and `##` before those that go on with a
            word; only with `wordpiece`.
        vocabulary: The pieces, which planning reads from the file.
    """

    name = "tokenize"
    main = "by"
    of_sequences = True

    by: Data[Literal["whitespace", "characters", "regex", "wordpiece"]]
    pattern: Data[OptionalText] = None
    file: Data[OptionalPath] = None
    vocabulary: Learned[tuple[str, ...]] = None

    @staticmethod
    def op(
        found: tf.Tensor, *, by: str, pattern: str | None, vocabulary: list[str] | None, tokenizer: Any = None
    ) -> Any:
        """Return tokens: of a batch of texts a ragged tensor (batch, tokens), of one text a vector.

        `tokenizer` is that of the vocabulary, for a caller who keeps it; without one it is made here.
        """
        found = tf.where(found == b"\xff", "", found)  # which stands for a missing text
        if by == "wordpiece":
            if tokenizer is None:
                import tensorflow_text

                tokenizer = tensorflow_text.FastWordpieceTokenizer(vocabulary, token_out_type=tf.string)
            return tokenizer.tokenize(found)
        if by == "characters":
            return tf.strings.unicode_split(found, "UTF-8")
        return tf.strings.split(found if pattern is None else tf.strings.regex_replace(found, pattern, " "))

    def applied(self, value: Any) -> Any:
        if self.vocabulary is None:
            return super().applied(value)
        return self.op(value, **self.arguments, tokenizer=wordpieces(self.vocabulary))

    def opened(self) -> Self:
        return self if self.file is None else self.replace(vocabulary=self.vocabulary or pieces_of(self.file))

    def faults(self) -> Faults:
        if self.pattern is None:
            return
        try:
            pc.replace_substring_regex(pa.array([""]), self.pattern, " ")
        except pa.ArrowInvalid as error:
            found = f"{self.pattern}: {str(error).removeprefix('Invalid regular expression: ')}"
            yield "pattern", found, "a regular expression in the syntax of RE2", "correct it"

    def rules(self) -> Faults:
        for name, by, wanted, such_as in (
            ("pattern", "regex", "a regular expression of what is between two tokens", r"'\W+'"),
            ("file", "wordpiece", "the path of a vocabulary", "vocab.txt"),
        ):
            value, is_wanted = getattr(self, name), self.by == by
            if is_wanted is (value is None):
                remedy = f"add {name}: {such_as}" if is_wanted else f"leave it out, or set by: {by}"
                yield name, value, f"{wanted if is_wanted else 'null'} with by: {self.by}", remedy

    def gives(self, incoming: Feature) -> Feature:
        _text(incoming)
        return Feature(dtype="string", shape=(None,), format="text")


@frozen
class Ngrams(ColumnStep):
    """All tokens, and behind them all runs of up to `size` tokens, joined by a blank.

    Attributes:
        size: Largest number of tokens in a run.
    """

    name = "ngrams"
    main = "size"
    of_sequences = True

    size: Data[Annotated[int, Field(ge=2)]]

    @staticmethod
    def op(found: Any, *, size: int) -> Any:
        """Return sequences of longer tokens."""
        return tf.strings.ngrams(found, list(range(1, size + 1)), separator=" ")

    def gives(self, incoming: Feature) -> Feature:
        if incoming.dtype != "string":
            raise UnfitError("tokens", "put it behind `tokenize`")
        return sequence(incoming)


@frozen
class Truncate(ColumnStep):
    """At most `length` items of a sequence.

    Attributes:
        length: Largest number of items that are kept.
        keep: Whether the `first` ones are kept, or the `last`.
    """

    name = "truncate"
    main = "length"
    of_sequences = True

    length: Data[Positive]
    keep: Data[Literal["first", "last"]] = "first"

    @staticmethod
    def op(found: Any, *, length: int, keep: str) -> Any:
        """Return sequences of at most `length` items."""
        part = slice(None, length) if keep == "first" else slice(-length, None)
        return found[:, part] if isinstance(found, tf.RaggedTensor) else found[part]

    def lengths(self, before: Any) -> Any:
        return np.minimum(before, self.length)

    def gives(self, incoming: Feature) -> Feature:
        return sequence(incoming)


@frozen
class MultiHot(OneHot):
    """A vector with a 1 at the index of each category in a sequence, as Keras's `multi_hot`."""

    name = "multi_hot"
    of_sequences = True
    gives_sequences = False

    @staticmethod
    def op(index: Any, *, categories: int) -> tf.Tensor:
        """Return float32 vectors of `categories`."""
        there = tf.math.bincount(index, minlength=categories, maxlength=categories, axis=-1, binary_output=True)
        return tf.ensure_shape(tf.cast(there, tf.float32), (*index.shape[:-1], categories))

    def gives(self, incoming: Feature) -> Feature:
        return super().gives(sequence(incoming).replace(shape=()))


def _text(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` unless it is a text."""
    if incoming.dtype != "string" or incoming.shape or incoming.format != "text":
        raise UnfitError("text", "leave it out, or put it before `tokenize`")
    return incoming


def sequence(incoming: Feature) -> Feature:
    """Return the feature; raise `UnfitError` unless it is a sequence."""
    if not incoming.is_sequence:
        raise UnfitError("a sequence, such as the tokens of a text", "put `tokenize` before it")
    return incoming


TEXTS: tuple[type[ColumnStep], ...] = (StandardizeText, Tokenize, Ngrams, Truncate, MultiHot)
