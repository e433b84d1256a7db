"""Datasets as such: made from images of one's own (prepare), and looked at (examine)."""
