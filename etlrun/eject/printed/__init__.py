"""Functions of programs, as they stand there: only their source is used, with that of the functions that they call.

What differs from program to program is in `given`. The functions of `tfds`, `tfrecord` and `folder` have the same
names, of which a program has those of its kind of dataset.
"""
