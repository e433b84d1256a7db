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
# # My photos to a model
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/etlrun/etlrun/blob/main/docs/tutorials/photos.ipynb)
#
# You have photos in folders, a folder for each class, and want a model that tells the classes apart. Here you find
# what is wrong with the photos, train, measure, predict other photos, and export the model. It takes about two minutes
# on two cores, without a GPU. Keras downloads 9 MB of ImageNet's weights once.
#
# The next cell installs etlrun where it is missing. On Colab this replaces TensorFlow by a version that etlrun
# supports: if you are asked to restart the session, do so, and run the cells from the top.

# %%
import importlib.util

if importlib.util.find_spec("etlrun") is None:
    get_ipython().run_line_magic("pip", 'install --quiet "etlrun @ git+https://github.com/etlrun/etlrun"')

# %% [markdown]
# ## 1. The photos
#
# If you have photos, put them into `photos/CLASS/`, and leave the next cell out. It draws some, and makes two mistakes
# that are found in most folders of photos: a broken file, and a copy in the wrong class.

# %%
import random
import shutil
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

random.seed(0)


def color():
    return tuple(random.choices(range(256), k=3))


for kind, sides in {"hexagon": 6, "square": 4, "triangle": 3}.items():
    folder = Path("photos", kind)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(100):
        image = ImageOps.colorize(Image.radial_gradient("L").resize((320, 240)), color(), color())
        for _ in range(random.randint(2, 5)):
            circle = (random.randint(20, 300), random.randint(20, 220), random.randint(30, 70))
            ImageDraw.Draw(image).regular_polygon(circle, sides, rotation=random.randint(0, 119), fill=color())
        image.save(folder / f"{number:03}.jpg")

shutil.copy("photos/square/007.jpg", "photos/triangle/100.jpg")
broken = Path("photos/hexagon/042.jpg")
broken.write_bytes(broken.read_bytes()[:500])
print(len([*Path("photos").glob("*/*.jpg")]), "photos")

# %% [markdown]
# ## 2. What is wrong with them

# %% language="bash"
# etlrun doctor dataset=folder dataset.dir=photos

# %% [markdown]
# Each finding has its files and a remedy. Remove both:

# %%
Path("photos/hexagon/042.jpg").unlink()
Path("photos/triangle/100.jpg").unlink()

# %% [markdown]
# ## 3. A model
#
# MobileNetV2 has learned from ImageNet what images look like. All of it stays as it is but the last layer, which
# learns your classes. So each image passes the network once, in the first epoch; `cache.at=features` keeps what comes
# out.

# %%
import etlrun

plan = etlrun.plan(
    "dataset=folder",
    "dataset.dir=photos",
    "transform=imagenet_224",
    "cache=memory",
    "cache.at=features",
    "model=mobilenet_v2",
    "trainer.epochs=10",
)
run = plan.fit("outputs/shapes")
run

# %% [markdown]
# Look at the validation accuracy: the share of right answers on the photos that the training has not seen.
#
# ## 4. How good it is

# %%
evaluation = run.evaluate()
accuracy = evaluation.accuracy
print(f"{accuracy.value:.3f} (95 % interval {accuracy.low:.3f} to {accuracy.high:.3f})")

# %% [markdown]
# The accuracy has a 95 % interval: from 60 photos nobody can know it better.
#
# ## 5. Other photos

# %%
for prediction in run.predict("photos/square/001.jpg", "photos/triangle/002.jpg", top=1):
    print(prediction.path, prediction.probabilities)

# %% [markdown]
# `run.model` is the Keras model, for all else that Keras can do.

# %%
run.model.count_params()

# %% [markdown]
# ## 6. Without etlrun
#
# The SavedModel takes the bytes of image files; decoding, resizing and scaling are inside, and it needs TensorFlow
# alone.

# %% language="bash"
# etlrun export outputs/shapes --format saved_model

# %%
import tensorflow as tf

serve = tf.saved_model.load("outputs/shapes/exports/saved_model").signatures["serving_default"]
serve(image=tf.constant([Path("photos/square/001.jpg").read_bytes()]))["probabilities"].numpy().round(2)

# %% [markdown]
# ## What next
#
# - Write the photos once as a dataset, which is read faster, and put what a run does into a config to review:
#   `docs/tutorials/photos.md`.
# - Does the training wait for the photos? `docs/tutorials/gpu_waits.md`.
