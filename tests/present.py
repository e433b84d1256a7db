"""What is there, for values that could be None by their type."""

from typing import TypeVar

Value = TypeVar("Value")


def present(found: Value | None) -> Value:
    """Return a value, which a test expects to be there."""
    assert found is not None
    return found
