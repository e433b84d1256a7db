"""Scripts that measure, each with its table in `results`."""
