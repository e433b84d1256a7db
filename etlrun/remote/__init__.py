"""Objects of stores and servers that fsspec reads, and their copies on this machine."""
