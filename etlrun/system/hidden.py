"""Variables of the environment that a config names, as `${oc.env:NAME}`: their values are read late, and not shown."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Mapping
    from types import TracebackType

FORM = re.compile(r"\$\{oc\.env:([A-Za-z_]\w*)(?:,([^${}\[\]'\",\\]*))?\}", re.ASCII)
"""The text of a config that names a variable alone, with its name and its default."""
_LEAST_WITHIN = 8
"""Letters from which on a value is hidden within a word, too; shorter ones are words that texts may hold by chance."""
_hidden: dict[str, str] = {}
"""What is hidden, and the text of the config in its place."""
_reviews: list[object] = []
"""The reviews that this process makes."""


class Variable(NamedTuple):
    """A variable of the environment that a text of a config names.

    Attributes:
        text: The text.
        name: Its name.
        default: The value without it; None if it has to be there.
    """

    text: str
    name: str
    default: str | None

    @classmethod
    def of(cls, value: object) -> Self | None:
        """Return the variable that a value names; None if it is anything but `${oc.env:NAME}` or with a default."""
        form = FORM.fullmatch(value) if isinstance(value, str) else None
        return cls(form[0], form[1], form[2] and form[2].strip()) if form else None

    def read(self) -> str | None:
        """Return its value, which no text shows from now on, or the default; None if it is empty or not there."""
        if value := os.environ.get(self.name):
            if not _hidden:
                import logging

                made, ended = logging.getLogRecordFactory(), sys.excepthook

                def record_of(*given: Any, **named: Any) -> logging.LogRecord:
                    record = made(*given, **named)
                    with suppress(TypeError, ValueError):  # of a message that its handler reports
                        message = record.getMessage()
                        if (shown := hidden(message)) != message:
                            record.msg, record.args = shown, None
                    if record.exc_info and record.exc_info[1]:
                        record.exc_text = traced(record.exc_info[1]).rstrip()
                    return record

                def raised(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
                    if issubclass(kind, Exception):
                        print(traced(error), end="", file=sys.stderr)
                    else:
                        ended(kind, error, at)

                logging.setLogRecordFactory(record_of)
                sys.excepthook = raised
            _hidden.update(dict.fromkeys(_forms(value), self.text))
        return value or self.default


@contextmanager
def in_review() -> Iterator[None]:
    """Make a review in the block, which opens no store that a variable names."""
    _reviews.append(None)
    try:
        yield
    finally:
        _reviews.pop()


def is_review() -> bool:
    """Return whether this process makes a review."""
    return bool(_reviews)


def is_closed(storage: Mapping[str, object] | None) -> bool:
    """Return whether the store of these options is not to be opened."""
    return is_review() and any(map(Variable.of, (storage or {}).values()))


def hidden(text: str) -> str:
    """Return a text in which each value that was read has the text of the config in its place."""
    for value in sorted(filter(text.__contains__, _hidden), key=len, reverse=True):
        alone = re.escape(value) if len(value) >= _LEAST_WITHIN else rf"(?<!\w){re.escape(value)}(?!\w)"
        text = re.sub(alone, lambda _, of=_hidden[value]: of, text)  # type: ignore[misc]
    return text


def traced(error: BaseException) -> str:
    """Return an error with its traceback, in which values are hidden."""
    import traceback

    return hidden("".join(traceback.format_exception(error)))


def _forms(value: str) -> Iterator[str]:
    """Yield a value, and its parts if it is a URL, in each form in which libraries tell it."""
    import json
    from urllib.parse import quote, quote_plus, unquote, urlsplit

    parts = {value, value.rstrip("/"), value.lower()}
    with suppress(ValueError):
        url = urlsplit(value)  # which names its server, and who asks it
        host = url.netloc.rpartition("@")[2]
        for part in filter(None, (url.netloc, host, url.hostname, url.username, url.password)):
            parts |= {part, unquote(part)}
    for part in parts:
        yield from filter(None, (part, quote(part, ""), quote_plus(part), json.dumps(part)[1:-1], repr(part)[1:-1]))
