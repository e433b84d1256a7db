"""What a plan means in TensorFlow: tf.data, and nothing else of it.

`build.Pipeline` walks over a plan's stages and calls, for each, the one function registered for its
type: in `DATASET_STAGES` (dataset in, dataset out) or, for what works on one example, in `STEPS`.
"""
