"""What every part stands on: errors, the machine, locks, files, the terminal, and how processes begin and end."""

VERSION = "0.1.0"
"""Version of etlrun."""
