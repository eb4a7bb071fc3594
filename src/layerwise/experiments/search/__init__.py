"""Search: the plan of a given price that loses least, and what confirms it."""
