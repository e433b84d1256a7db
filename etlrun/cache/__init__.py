"""Caches on disk: files that one run fills, and that any run on the same data reads. Free of TensorFlow.

`store` knows claims and publishing; `folders` which folders are caches at all; `locks` what one process keeps from
others; `parts` the files of one cache; `entries` what is there; `keeper` what a pipeline does with its cache from pass
to pass.
"""
