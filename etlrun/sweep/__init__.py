"""Multiruns: what is left to run (`ledger`), running it (`engine`, `process`), and what it showed (`results`).

grid --create--> Ledger --engine--> runs' folders --collect--> Results --report--> report.html, report.md, results.*

`compare` tells better from tied; `pruning` what can't win. Nothing here imports TensorFlow but a job's own process.
"""
