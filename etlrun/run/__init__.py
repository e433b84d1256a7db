"""One run, from the config in its folder to the report beside it. Keras is known here alone."""
