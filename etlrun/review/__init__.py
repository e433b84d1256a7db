"""Reviews of configs: what differs between two, and whether all of a folder are sound. All without TensorFlow."""
