"""Run folders: record and summary, report, locks, and what is read from them later."""
