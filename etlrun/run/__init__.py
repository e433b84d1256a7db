"""Execution of one run: from the config in its folder to its report; with `etlrun.trained` the only part with Keras."""
