"""Cost of training runs: the loss reached at a cost, and the cost to reach a loss or score."""
