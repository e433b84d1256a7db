"""What all parts of a summary are, and numbers that JSON cannot represent."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python

finite: Callable[[Any], Any] = partial(to_jsonable_python, inf_nan_mode="null")
"""Replaces numbers that JSON cannot represent (NaN, infinity) with None, at every depth."""


class Part(BaseModel):
    """Base of all parts of a summary.

    Only fields that were set are written: a missing key is not known yet, `null` is a value.
    """

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, defer_build=True)

    @property
    def written(self) -> dict[str, Any]:
        """Fields that were set, as plain values; numbers that JSON cannot represent are None."""
        return dict(finite(self.model_dump(exclude_unset=True)))

    def with_values(self, **values: Any) -> Self:
        """Return a copy with these values; `TypeError` without such a field, `ValidationError` of another type."""
        if unknown := values.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return type(self).model_validate({**{name: getattr(self, name) for name in self.model_fields_set}, **values})
