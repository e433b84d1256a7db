"""Standalone programs of plans: plain Python with tf.data, TFDS and Keras, without this package.

`program.ejected` writes the method call of each stage of a plan (`Stage.call`), or the text of the function registered
for its type in `datasets.DATASET_TEXTS`, and `parts.parts` the model and the loop. These write calls of real functions,
whose sources a program contains with those of its steps: of `printed`, and of what runs use, too. Objects of Keras are
values that a run makes and a program names: see `etlrun.stages.keras_objects`.
"""
