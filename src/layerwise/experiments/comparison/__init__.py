"""Several models side by side, from the rows of their runs."""
