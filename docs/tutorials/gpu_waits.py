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
# # Find out why my GPU waits
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/etlrun/etlrun/blob/main/docs/tutorials/gpu_waits.ipynb)
#
# You train on a GPU, and suspect that it waits for data. Here you measure how long it waits, learn which part of the
# pipeline is to blame, try what the run advises, and prove that the model still sees the same data. It takes about two
# minutes on two cores. No GPU is needed: it is emulated by a model that takes 4 ms for each batch and computes
# nothing. The pipeline is real.
#
# The next cell installs etlrun where it is missing. On Colab this replaces TensorFlow by a version that etlrun
# supports: if you are asked to restart the session, do so, and run the cells from the top.

# %%
import importlib.util

if importlib.util.find_spec("etlrun") is None:
    get_ipython().run_line_magic("pip", 'install --quiet "etlrun @ git+https://github.com/etlrun/etlrun"')

# %% [markdown]
# ## 1. Measure
#
# A plan is what a config will do. This one reads 1,200 small JPEG images, which etlrun draws once, with one thread and
# without a cache. Each value says whether it changes the `data`, the `order`, the `training`, or only the `speed`.

# %%
import etlrun

accelerator = ["model=emulated", "model.step_ms=4"]
slow = etlrun.plan(*accelerator, "cache=none", "transform.num_parallel_calls=1")
slow

# %% [markdown]
# The run:

# %%
run = slow.fit()
run

# %% [markdown]
# Look at the **verdict**: whether the accelerator waits, for which stage, and how much faster the training would be
# with a pipeline that is never late. The **advice** is one override that addresses the bottleneck.

# %%
print("bound by ", run.verdict.kind)
print("at stage ", run.verdict.stage)
print("max gain ", round(run.verdict.max_gain, 2))
print("advice   ", run.verdict.advice)

# %% [markdown]
# ## 2. Try the advice
#
# All cores, and what the next run would advise: to decode once instead of in each epoch.

# %%
fast = etlrun.plan(*accelerator, "cache=memory", "transform.num_parallel_calls=autotune")
faster = fast.fit()
faster

# %%
print(f"{run.summary.examples_per_s:,.0f} -> {faster.summary.examples_per_s:,.0f} examples/s")

# %% [markdown]
# ## 3. Prove that the data are the same
#
# A faster pipeline that trains on something else is no gain. `diff` compares the plans.

# %%
difference = etlrun.diff(slow, fast)
difference

# %%
assert difference.changes_speed
assert not (difference.changes_data or difference.changes_order or difference.changes_training)

# %% [markdown]
# Don't take that on trust: read both. `datasets()` gives what the model gets.

# %%
import numpy as np

old, new = slow.datasets()["train"], fast.datasets()["train"]
same = all(
    np.array_equal(left, right)
    for batches in zip(old.as_numpy_iterator(), new.as_numpy_iterator(), strict=True)
    for left, right in zip(*batches, strict=True)
)
print("the same images and classes, in the same order:", same)

# %% [markdown]
# ## What next
#
# - **Your own model**: leave `model=emulated` out, and a network is trained on your GPU. The verdict is made in the
#   same way.
# - **A GPU that you don't have**: `experiment=h100_resnet50` and `experiment=a100_resnet50` have published step times.
# - The same on the command line, with a sweep that tells a gain from chance: the page of this tutorial,
#   `docs/tutorials/gpu_waits.md`.
