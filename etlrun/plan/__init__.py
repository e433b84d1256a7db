"""A config parsed (`spec`), what will happen (`planner`), and how that is shown (`render`). Free of TensorFlow."""
