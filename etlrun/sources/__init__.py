"""Sources of examples: datasets prepared by TFDS, or generated here."""
