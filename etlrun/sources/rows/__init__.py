"""Rows: examples that are read by number, of which the columns are kept in mapped files."""
