"""Steps on columns of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from etlrun.stages.base import DATA
from etlrun.stages.column_step import ColumnStep
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.lazy import tf


@dataclass(frozen=True, kw_only=True)
class Part(ColumnStep):
    """A part of a time, in UTC: a number.

    Attributes:
        part: `year`, `month` (1 to 12), `day` (1 to 31), `weekday` (0 is Monday), `hour` or `minute`.
    """

    name = "part"
    main = "part"

    part: Annotated[Literal["year", "month", "day", "weekday", "hour", "minute"], DATA]

    @staticmethod
    def op(values: tf.Tensor, *, part: str) -> tf.Tensor:
        """Return float64 numbers for microseconds since 1970; NaN for the time that stands for a missing one."""
        minutes = tf.math.floordiv(values, 60_000_000)
        days = tf.math.floordiv(minutes, 1_440)
        if part == "minute":
            found = tf.math.floormod(minutes, 60)
        elif part == "hour":
            found = tf.math.floordiv(tf.math.floormod(minutes, 1_440), 60)
        elif part == "weekday":
            found = tf.math.floormod(days + 3, 7)
        else:  # days since 1 March of year 0, in eras of 400 years
            era = tf.math.floordiv(days + 719_468, 146_097)
            of_era = days + 719_468 - era * 146_097
            years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
            of_year = of_era - (365 * years + years // 4 - years // 100)
            month = (5 * of_year + 2) // 153
            if part == "day":
                found = of_year - (153 * month + 2) // 5 + 1
            elif part == "month":
                found = tf.math.floormod(month + 2, 12) + 1
            else:
                found = years + era * 400 + month // 10
        nan = tf.constant(float("nan"), tf.float64)
        return tf.where(values == tf.int64.min, nan, tf.cast(found, tf.float64))

    def gives(self, incoming: Feature) -> Feature:
        if incoming.format != "timestamp":
            remedy = "set dataset.columns={NAME: timestamp} if the column holds times"
            raise UnfitError("a timestamp", remedy)
        ends = {"month": (1, 12), "day": (1, 31), "weekday": (0, 6), "hour": (0, 23), "minute": (0, 59)}
        low, high = ends.get(self.part, (None, None))
        return Feature(dtype="float64", shape=incoming.shape, low=low, high=high, has_missing=incoming.has_missing)
