"""Numbers and sentences that are computed from the rows of a run."""
