"""Where examples come from: data sets that TFDS has prepared, or that are drawn here."""
