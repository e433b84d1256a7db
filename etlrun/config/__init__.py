"""Composition of configs from YAML and arguments. Only this package and `etlrun.cli` use Hydra, by its public API."""
