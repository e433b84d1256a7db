"""What a sweep showed: gains, a decision, and the reports of it."""
