"""The kinds of run, each as data in a file of its own, with its words beside it (`NAME.md`).

`KINDS` is the one list: the page, the Markdown, the terminal and the masthead all read it.
"""

from __future__ import annotations

from layerwise.report.kind import Kind
from layerwise.report.kinds.healing import HEALING_KIND
from layerwise.report.kinds.timing import TIMING

KINDS: tuple[Kind, ...] = (HEALING_KIND, TIMING)
"""In the order of the page."""
