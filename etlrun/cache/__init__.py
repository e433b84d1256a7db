"""Caches on disk: files that one run fills, and that any run on the same data reads. Does not import TensorFlow.

`store` claims and publishes caches; `folders` identifies their folders; `locks` marks use by processes; `parts` reads
and writes the files of a cache; `entries` describes published caches; `keeper` decides for each pass of a pipeline
whether to fill or read its cache.
"""
