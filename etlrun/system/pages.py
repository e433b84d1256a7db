"""Self-contained HTML pages: templates and styles of a package, and the style that all pages share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined


@cache
def text_of(package: str, name: str) -> str:
    """Return the text of a file in the folder `web` of `package`."""
    return resources.files(package).joinpath("web", name).read_text(encoding="utf-8")


def rendered(package: str, template: str, **values: Any) -> str:
    """Return a template in the folder `web` of `package` as HTML; texts among its values are escaped.

    Its variable `style` is the style sheet of all pages, followed by that of the package.
    """
    return "".join(parts(package, template, **values))


def parts(package: str, template: str, **values: Any) -> Iterator[str]:
    """Yield what `rendered` returns, part by part, so that a large page is never in memory."""
    style = text_of("etlrun.system", "base.css") + text_of(package, "style.css")
    yield from _environment(package).get_template(template).generate(style=style, **values)


@cache
def _environment(package: str) -> Environment:
    """Return the templates of `package`, each of which is compiled once: a run writes its page after each epoch."""
    return Environment(
        loader=FunctionLoader(lambda name: text_of(package, name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
