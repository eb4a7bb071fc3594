"""The report of a robustness run: which way of training survives which change."""
