"""What every part stands on: errors, the machine, locks, files, tables for the terminal, pages."""

VERSION = "0.1.0"
"""Version of etlrun."""
