"""Models of other packages for tables: boosted trees and a regularized linear model. Used by tables_models.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SCORING = {"number": "neg_mean_absolute_error"}
"""Score by which a setting is chosen; that of other kinds is log loss."""


def boosted(kind: str, given: pd.DataFrame, target: pd.Series, asked: pd.DataFrame) -> np.ndarray:
    """Predictions of HistGradientBoosting, in the setting that is better by cross-validation in the given rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_score

    make = HistGradientBoostingRegressor if kind == "number" else HistGradientBoostingClassifier
    settings: tuple[dict[str, Any], ...] = (
        {},
        {"learning_rate": 0.03, "max_iter": 300, "max_leaf_nodes": 15, "l2_regularization": 1.0},
    )
    models = [make(random_state=0, **of) for of in settings]
    given, asked = with_categories(given, asked)
    scoring = SCORING.get(kind, "neg_log_loss")
    scores = [cross_val_score(model, given, target, scoring=scoring, cv=3).mean() for model in models]
    return predicted(models[int(np.argmax(scores))].fit(given, target), kind, asked)


def linear(kind: str, given: pd.DataFrame, target: pd.Series, asked: pd.DataFrame) -> np.ndarray:
    """Predictions of a regularized linear model of standardized numbers, and categories of at least three rows."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (
            OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist"),
            make_column_selector(dtype_exclude="number"),
        ),
    )
    if kind == "number":
        model: Any = RidgeCV(np.logspace(-3, 4, 15))
    else:
        model = LogisticRegressionCV(
            scoring="neg_log_loss", cv=3, max_iter=2_000, l1_ratios=(0.0,), use_legacy_attributes=False
        )
    return predicted(make_pipeline(columns, model).fit(given, target), kind, asked)


def lightgbm(kind: str, given: pd.DataFrame, target: pd.Series, asked: pd.DataFrame) -> np.ndarray:
    """Predictions of LightGBM, as it is when nothing is set."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    make = LGBMRegressor if kind == "number" else LGBMClassifier
    given, asked = with_categories(given, asked)
    return predicted(make(random_state=0, verbose=-1, n_jobs=1).fit(given, target), kind, asked)


def with_categories(given: pd.DataFrame, asked: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables with texts as categories, of which the given rows have at most 254; others are missing."""
    found = given.copy(), asked.copy()
    for name in given.columns.difference(given.select_dtypes("number").columns):
        kept = given[name].value_counts().index[:254]
        for table in found:
            table[name] = table[name].astype(str).where(table[name].isin(kept)).astype("category")
            table[name] = table[name].cat.set_categories(kept.astype(str))
    return found


def predicted(model: Any, kind: str, asked: pd.DataFrame) -> np.ndarray:
    """Numbers, or the probabilities of all classes in order."""
    return np.asarray(model.predict(asked) if kind == "number" else model.predict_proba(asked))


def error(kind: str, found: np.ndarray, target: pd.Series) -> float:
    """Mean absolute error of numbers; log loss of the probabilities of classes, in order."""
    if kind == "number":
        return float(np.abs(found.reshape(-1) - target).mean())
    from sklearn.metrics import log_loss

    return float(log_loss(target, found / found.sum(axis=1, keepdims=True), labels=sorted(target.unique())))
