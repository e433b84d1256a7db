"""Multiruns: the ledger of a sweep, the execution of its jobs, and its progress.

grid --create--> Ledger --engine--> run folders --collect--> Results --report--> report.html, report.md, results.*

`pruning` finds configs that can't win. Only the processes of the jobs import TensorFlow.
"""
