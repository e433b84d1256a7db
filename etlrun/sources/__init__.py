"""Sources of examples: datasets of TFDS, folders of images, TFRecord files, and the sample that is generated here."""
