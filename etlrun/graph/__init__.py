"""What a plan means in TensorFlow: tf.data, and nothing else of it.

`build.Pipeline` walks over a plan's stages and calls, for each, the one function registered for its
type in `DATASET_STAGES` (dataset in, dataset out); what works on one example is a function of its step.
"""
