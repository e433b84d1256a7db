"""The other processes of a run: hosts that train with it, and workers of tf.data's service that read for it.

All others ask `Cluster` about them, a plan's `spec.cluster`, and `here()` in a process of a run.
"""
