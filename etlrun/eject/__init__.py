"""A plan as a program of its own: plain Python on tf.data, TFDS and Keras, which imports nothing of this package.

`program.ejected` writes, for each stage of a plan, the call that it is (`Stage.call`), or asks the one function
registered for its type: in `datasets.DATASET_TEXTS` or `parts.PART_TEXTS` (dataset, model, trainer). They say in
Python's text what `etlrun.graph`, `etlrun.run.model` and `etlrun.run.fit` do. Of a step its own function stands in the
program.
"""
