"""Runs on several hosts: one process on each reads its own part of the data, and all train one model with JAX.

place.py    which host this is, from the environment of a launcher
here.py     JAX's processes: joining them, what they compute together
parts.py    the part of the data of a host
link.py     connections between the hosts
watch.py    the process on each host that starts its part of the run, watches it, and ends it with all others
member.py   entry point of that part
"""
