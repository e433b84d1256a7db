"""Examination of data: images of the examples after each step of a plan, and what is wrong with a dataset."""
