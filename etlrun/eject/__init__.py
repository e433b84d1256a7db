"""Standalone programs of plans: plain Python with tf.data, TFDS and Keras, without this package.

`pipeline.Writer` writes the method call of each stage of a plan (`Stage.call`), or the text of the function registered
for its type in `pipeline.DATASET_TEXTS`, and `program.ejected` the model, the loop and the rest. These write calls of
real functions, whose sources a program contains with those of its steps: of what runs use, and of `printed`. Objects of
Keras are values that a run makes and a program names: see `etlrun.stages.keras_objects`.
"""
