"""Command line: `main` dispatches the commands; larger commands have a module each."""
