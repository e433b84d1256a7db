"""report.html."""

from typing import Any


def html(results: dict[str, Any]) -> str:
    return ""
