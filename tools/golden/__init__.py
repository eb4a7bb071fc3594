"""Golden runs: one small stored run of each kind, and all its rendered outputs, as files.

A kind is a folder of `tests/golden`. Its rows (`run.json`) were made once, by the commands in `command.txt`. The
outputs (verdicts, figures, terminal, Markdown, page) are rendered from these rows, so that a change of the report is
reviewed as a change of a file.

stored_run   stores the rows of a run as a file with one row per line comparable   extracts the numbers of figures and
the visible text of a page outputs      renders, writes and compares the outputs of a kind inputs       makes the texts
and small models that commands read commands     repeats the commands of a kind and compares the rows with the stored
ones
"""
