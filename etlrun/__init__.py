"""A declarative training runner: YAML configs become tf.data graphs and trained Keras models."""

__version__ = "0.1.0"
