"""Caches on disk: files that one run fills, and that any run on the same data reads. Free of TensorFlow.

`store` knows folders, claims and publishing; `parts` the files of one cache; `keeper` what a pipeline does with them
from pass to pass; `limits` what there is space for.
"""
