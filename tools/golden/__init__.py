"""Golden runs: one small stored run of each kind, and everything that is said and drawn of it, frozen as files.

A kind is a folder of `tests/golden`. Its rows (`run.json`) were made once, by the commands in `command.txt`; the frozen
outputs (verdicts, figures, terminal, Markdown, page) are rendered from those rows, so that a change of the report shows
itself as a change of a file that is read before it is kept.

stored_run   the rows of a run as a file, a row a line, read by the names of its columns
comparable   a figure without its looks, and the visible text of a page
outputs      the frozen outputs of a kind, rendered, written, and compared
inputs       the texts and the small models that commands are tried on
commands     the commands of a kind, carried out again, and their rows beside the stored ones
"""
