"""Preparation of own images as a TFDS dataset: scan, check, splits, shards, metadata."""
