"""A run's folder: its record and summary, its report, its lock, and what is read from them later."""
