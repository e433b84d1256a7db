"""Functions of programs, as they stand there: only their source is used, with that of the functions that they call.

What differs from program to program is in `given`. Where modules for kinds of datasets have functions of the same name,
a program has that of its dataset: `folder`, `tfrecord` or `tfds`, then those of `loops`.
"""
