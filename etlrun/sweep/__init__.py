"""Multiruns: the ledger of a sweep, the execution of its jobs, and its progress.

grid --create--> Ledger --engine--> run folders --collect--> Results --report--> report.html, report.md, results.*

Only the processes of the jobs import TensorFlow.
"""
