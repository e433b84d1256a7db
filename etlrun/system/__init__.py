"""What every part stands on: errors, the machine, locks, files, tables for the terminal, pages."""
