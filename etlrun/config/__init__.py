"""From YAML and arguments to configs: all that knows Hydra, but for its entry in `etlrun.cli.launch`."""
