"""Runs on several hosts: one process on each reads its own part of the data, and all train one model with JAX.

here.py     which host this is, from the environment of a launcher; joining JAX's processes, what they compute together
parts.py    the part of the data of a host
same.py     what all hosts have in common, compared before the first step
follow.py   the run on a host that doesn't write the results
"""
