"""Composition of configs from YAML and arguments. Only this package and `etlrun.cli.launch` use Hydra."""
