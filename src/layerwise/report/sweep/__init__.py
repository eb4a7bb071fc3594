"""The report of a sweep: many plans, what each does to the loss, and what it costs to run."""
