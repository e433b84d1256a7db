"""Caches on disk: files that one run fills, and that any run on the same data reads. Does not import TensorFlow.

`store` claims, publishes, lists and removes caches, and marks their use by processes; `parts` reads and writes the
files of a cache; `keeper` decides for each pass of a pipeline whether to fill or read its cache.
"""
