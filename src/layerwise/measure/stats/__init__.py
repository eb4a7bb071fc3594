"""Statistics: estimates with intervals, tests, verdicts, and the arrays and rows they are made from."""
