"""Modules that the fork server of jobs imports, once for all of them. Nothing here may start a thread or a device.

A process that has imported JAX must not be forked: with another backend than TensorFlow each job does its own imports.
"""

from etlrun.system.loading import keras_backend, loading

if keras_backend() == "tensorflow":
    with loading():
        import tensorflow_datasets

        import etlrun.run.epochs
        import etlrun.run.fit
        import etlrun.sweep.engine  # noqa: F401

        tensorflow_datasets.list_builders(with_community_datasets=False)  # imports them: a job does for any dataset
