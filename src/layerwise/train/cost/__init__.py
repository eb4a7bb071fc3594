"""The cost of trainings: what is reached at a cost, and what it costs to reach a loss or a score."""
