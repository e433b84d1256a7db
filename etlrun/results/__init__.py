"""Results of a sweep: gains, a decision, and reports."""
