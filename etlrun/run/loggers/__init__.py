"""Logs of a run beside its folder: TensorBoard, CSV, MLflow, Weights & Biases."""
