"""Review of configs: the difference between two, and checks of all configs in a folder. Needs no TensorFlow."""
