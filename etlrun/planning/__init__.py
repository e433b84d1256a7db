"""Config parsing (`spec`), planning (`planner`), and rendering of plans (`render`). Does not import TensorFlow."""
