"""Times of passes: milliseconds of every plan, and its ratio to the first."""
