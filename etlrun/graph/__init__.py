"""What a plan means in TensorFlow: tf.data, and nothing else of it.

`build.Pipeline` walks over a plan's stages: a stage that is a call of a method of `tf.data.Dataset` says which
(`Stage.call`), any other has a function (dataset in, dataset out) in `DATASET_STAGES`. What works on one example is a
function of its step.
"""
