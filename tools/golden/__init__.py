"""Golden runs: one small stored run of each kind and all its rendered outputs, frozen as files.

A kind is a folder of `tests/golden`. Its rows (`run.json`) were made once, by the commands in `command.txt`; the frozen
outputs (verdicts, figures, terminal, Markdown, page) are rendered from those rows, so that a change of the report is
reviewed as a change of a file.

stored_run   the rows of a run as a file with a row per line, read by column name
comparable   a figure without its style, and the visible text of a page
outputs      the frozen outputs of a kind: rendered, written and compared
inputs       the texts and small models that commands read
commands     reruns of the commands of a kind, compared with the stored rows
"""
