"""All steps on columns, by their names in a config."""

from __future__ import annotations

from etlrun.stages.column_buckets import Bucketize, Cross, Hash, Identity, Quantiles
from etlrun.stages.column_categories import Embed, Lookup, OneHot
from etlrun.stages.column_numbers import Clip, Fill, Log1p, MinMax, Missing, Robust, Standardize
from etlrun.stages.column_step import ColumnStep
from etlrun.stages.column_text import MultiHot, Ngrams, StandardizeText, TfIdf, Tokenize, Truncate
from etlrun.stages.column_times import Part

_NUMBERS: tuple[type[ColumnStep], ...] = (Fill, Missing, Part, Clip, Log1p, Standardize, MinMax, Robust)
_CATEGORIES: tuple[type[ColumnStep], ...] = (Bucketize, Quantiles, Identity, Lookup, Hash, Cross, OneHot, Embed)
_TEXTS: tuple[type[ColumnStep], ...] = (StandardizeText, Tokenize, Ngrams, Truncate, MultiHot, TfIdf)
COLUMN_STEPS: dict[str, type[ColumnStep]] = {step.name: step for step in (*_NUMBERS, *_CATEGORIES, *_TEXTS)}
"""All steps on columns by their names in a config."""
