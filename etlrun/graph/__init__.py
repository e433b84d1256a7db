"""tf.data graphs of plans.

`build.Pipeline` walks over the stages of a plan: a stage that is a method call of `tf.data.Dataset` declares it
(`Stage.call`), any other has a function from dataset to dataset in `DATASET_STAGES`. Per-example code is the `op`
of a step.
"""
