"""Execution of one run: from the config in its folder to its report. The only part that uses Keras."""
