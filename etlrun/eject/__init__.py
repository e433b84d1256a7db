"""Standalone programs of plans: plain Python with tf.data, TFDS and Keras, without this package.

`program.ejected` writes the method call of each stage of a plan (`Stage.call`), or the text of the function registered
for its type in `datasets.DATASET_TEXTS` or `parts.PART_TEXTS` (dataset, model, trainer). These write as Python text
what `etlrun.graph`, `etlrun.run.model` and `etlrun.run.fit` do. A program contains the function of each step.
"""
