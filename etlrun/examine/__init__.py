"""Examination of data: images of the examples after each step of a plan."""
