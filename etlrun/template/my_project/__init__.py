"""A step and a model for etlrun, which `pyproject.toml` registers as entry points."""
