"""Links to Markdown files outside the site, such as the card of a model.

GitHub shows such a file as a page. The site has no page of it, so there the link leads to the file itself.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

_LINK = re.compile(r"\]\(((?:\.\./)+src/[^)]+\.md)\)")


def with_files(text: str) -> str:
    """The text with such links marked as links to files.

    >>> with_files("[card](../../src/README.md), [page](claims.md)")
    '[card](path:../../src/README.md), [page](claims.md)'
    """
    return _LINK.sub(r"](path:\1)", text)


def _mark(app: Sphinx, docname: str, content: list[str]) -> None:
    content[0] = with_files(content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _mark)
    return {"parallel_read_safe": True}
