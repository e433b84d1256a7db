"""The command line: `main`, and a module for each command that is more than a call."""
