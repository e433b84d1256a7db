"""Conversion of figures to SVG that inherits colours and font from the page around it."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

COLOURS = {
    "ink": "#010101", "soft": "#010102", "line": "#010103", "paper": "#010104", "dot": "#010105",
    "accent": "#010106", "mark": "#010107",
}  # fmt: skip
"""Placeholder in a figure for each variable of the page's style sheet."""
STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a path is a dollar sign
    "font.size": 12,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["soft"],
    "axes.edgecolor": COLOURS["line"],
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.6,
    "xtick.color": COLOURS["line"],
    "ytick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["soft"],
    "ytick.labelcolor": COLOURS["soft"],
    "lines.markeredgewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": COLOURS["soft"],
}
"""Style of the figures, for `rc_context`."""


def svg(figure: Figure, name: str, title: str, description: str) -> Markup:
    """Return a figure as SVG for a page, with a title and a description for screen readers.

    `name` is unique in the page. Equal figures give equal text.
    """
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):  # savefig would draw it twice
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = file.getvalue()
    text = re.sub(r"<!--.*?-->|<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    body = text.partition(">")[2]
    width, height = figure.get_size_inches() * figure.dpi
    opened = Markup(
        '<svg role="img" aria-labelledby="{0}-title {0}-description" viewBox="0 0 {1:g} {2:g}">'
        '<title id="{0}-title">{3}</title><desc id="{0}-description">{4}</desc>'
    ).format(name, width, height, title, description)
    return opened + Markup(re.sub(r"<[^>]*>\s*", _tag, body))  # noqa: S704 - matplotlib escapes what users wrote


def _tag(found: re.Match[str]) -> str:
    """Return a tag with the page's colours and font, and without ids that nothing refers to."""
    tag = re.sub(r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", found.group())
    tag = re.sub(r"font-family: [^;\"]*;?", "", tag).replace("xlink:href", "href")
    for variable, colour in COLOURS.items():
        tag = tag.replace(colour, f"var(--{variable})")
    return tag.rstrip() + "\n" if tag.startswith(("</g", "</svg")) else tag.rstrip()
