"""Input from servers of tf.data's service, on this machine or on others."""
