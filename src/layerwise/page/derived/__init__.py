"""Numbers that follow from the rows of a run: functions from rows to rows, and from rows to findings."""
