"""Standalone programs of plans: plain Python with tf.data, TFDS and Keras, without this package.

`pipeline.Writer` writes the method call of each stage of a plan (`Stage.call`), or the text of the function that is
registered for its type in `pipeline.DATASET_TEXTS`, and `program.ejected` the model, the loop and the rest. These call
functions by their names, whose sources `text.complete` puts into a program: of steps, of what runs use in modules of
stages, and of `printed`. Objects of Keras are values that a run makes and a program names: see
`etlrun.stages.keras_objects`.
"""
