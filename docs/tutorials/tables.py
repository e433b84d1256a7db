# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A table to a model
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/etlrun/etlrun/blob/main/docs/tutorials/tables.ipynb)
#
# You have a table, and want to predict one of its columns from the others. Here you find a column that gives the
# answer away, see what is made of each column, train a model, learn what each column is worth, and predict rows that
# are new. It takes about a minute on two cores.
#
# The next cell installs etlrun where it is missing. On Colab this replaces TensorFlow by a version that etlrun
# supports: if you are asked to restart the session, do so, and run the cells from the top.

# %%
import importlib.util

if importlib.util.find_spec("etlrun") is None:
    get_ipython().run_line_magic("pip", 'install --quiet "etlrun @ git+https://github.com/etlrun/etlrun"')

# %% [markdown]
# ## 1. The table
#
# Sales of houses, with what is known of each house, the price, and the tax on it. A frame of pandas would do as well:
# `frame.to_csv`.

# %%
import csv
import random
from datetime import date, timedelta

random.seed(0)
PER_M2 = {"centre": 5200, "harbour": 4600, "hills": 4100, "north": 3400, "south": 2900}


def house():
    return {
        "area": round(random.uniform(35, 220), 1),
        "rooms": random.randint(1, 7),
        "district": random.choice([*PER_M2]),
        "built": random.choice([*range(1900, 2024)] + 12 * [""]),  # some are not known
    }


def sale(number):
    sold, day = house(), date(2020, 1, 1) + timedelta(days=random.randrange(1800))
    age = 2024 - (sold["built"] or 1960)
    price = round(sold["area"] * PER_M2[sold["district"]] * (1 - age / 400) * random.gauss(1, 0.06), -2)
    return {"id": 10_000 + number, **sold, "sold": day, "tax": round(price * 0.035), "price": price}


sales = [sale(number) for number in range(2000)]
with open("sales.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, sales[0])
    writer.writeheader()
    writer.writerows(sales)

# %% [markdown]
# ## 2. What is wrong with it

# %% language="bash"
# etlrun doctor experiment=table dataset.files=sales.csv 'dataset.target={price: number}'

# %% [markdown]
# `tax` is computed from the price: a model that knows it predicts a price perfectly, here, and is useless for a house
# that is not sold yet. The number of a row and the day of the sale tell nothing of a house either.
#
# ## 3. A model
#
# `split_by` validates on the latest fifth of the sales: the model will be asked about the future, not about the past.

# %%
import etlrun

plan = etlrun.plan(
    "experiment=table",
    "dataset.files=sales.csv",
    "dataset.target={price: {number: standardize}}",
    "dataset.inputs=[area,rooms,district,built]",
    "dataset.split_by={time: sold}",
)
plan

# %% [markdown]
# The plan says what happens to each column: what is missing in `built` becomes the median of the training rows, and
# `built_missing` says so to the model.

# %%
run = plan.fit("outputs/sales")
run

# %% [markdown]
# `val_mae`: the predictions for the sales that the training has not seen are off by so much, on average, in the unit
# of the price.
#
# ## 4. How good it is, and why

# %%
evaluation = run.evaluate()
for name, figure in {"MAE": evaluation.mae, "R2": evaluation.r2}.items():
    print(f"{name:3} {figure.value:,.5g} (95 % interval {figure.low:,.5g} to {figure.high:,.5g})")

# %% [markdown]
# What each column is worth is how much larger the errors are if its values are shuffled:

# %%
for column in evaluation.importance.columns:
    print(f"{column.name:10}{column.importance.value:10,.0f}")

# %% [markdown]
# ## 5. New rows

# %%
predictions = run.predict(
    {"area": 90.0, "rooms": 3, "district": "harbour", "built": 1999},
    {"area": 90.0, "rooms": 3, "district": "south", "built": None},
)
[round(prediction.value) for prediction in predictions]

# %% [markdown]
# ## What next
#
# - The same with a config to review, and on the command line: `docs/tutorials/tables.md`.
# - The steps of each column, classes, several targets: `docs/tables.md`.
