"""Docstrings of layerwise as reStructuredText.

The docstrings are plain text in the manner of Markdown: names stand between single backticks, tables and formulas are
indented by four spaces, examples begin with `>>>`. Sphinx reads another markup, in which most of that means something
else, so every block is rewritten for it.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

from public_names import link

_NAME = re.compile(r"layerwise(\.\w+)+")
_MARKED = re.compile(r"(\*[\w ]+\*)|([\\*|]|_(?!\w))")  # an emphasised word stays
_BEFORE = (*" \n\"'([{<-/:",)
_AFTER = (*" \n\"')]}>-/\\:.,;!?",)
_ENTRY = re.compile(r"    (\w+)  +(\S.*)")


def rewritten(lines: list[str]) -> list[str]:
    """A docstring, block by block.

    >>> rewritten(["Sums `x` * 2.", "", "    a | b", "", ">>> 1", "1"])
    ['Sums ``x`` \\\\* 2.', '', '::', '', '    a | b', '', '>>> 1', '1', '']
    """
    new: list[str] = []
    literal = False
    for block in _blocks(lines):
        if block[0].startswith("    "):
            new += ([] if literal else ["::", ""]) + block
            literal = True
        else:
            new += block if block[0].startswith(">>> ") else _paragraph(block)
            literal = False
        new.append("")
    return new


def contents(lines: list[str], package: str) -> list[str]:
    """The docstring of a package: its table of modules, one a line, becomes a list with a link to each."""
    new: list[str] = []
    listed = False
    for line in lines:
        entry = _ENTRY.fullmatch(line)
        target = link(f"{package}.{entry[1]}") if entry else None
        if entry and target:
            new += [f"- `{package}.{entry[1]}`: {entry[2]}"]
            listed = True
        elif listed and line.startswith("     "):
            new.append(f"  {line.strip()}")
        else:
            new.append(line)
            listed = False
    return new


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Runs of filled lines; a run of prose ends where indented lines begin."""
    for filled, run in groupby(lines, key=lambda line: bool(line.strip())):
        block = list(run)
        if filled and block[0].startswith(">>> "):
            yield block
        elif filled:
            yield from (list(part) for _, part in groupby(block, key=lambda line: line.startswith("    ")))


def _paragraph(block: list[str]) -> list[str]:
    """Prose or a list. A code span may run over the end of a line, so lines are rewritten together.

    A span that touches a word is parted from it by an escaped space, which is not shown: Sphinx would not see the span.

    >>> _paragraph(["`Member`s of 1..`5` (`x`)"])
    ['``Member``\\\\ s of 1..\\\\ ``5`` (``x``)']
    """
    parts = re.split(r"`([^`]+)`", "\n".join(block))
    new = _escaped(parts[0])
    for code, prose in zip(parts[1::2], parts[2::2], strict=True):
        before = "" if not new or new.endswith(_BEFORE) else "\\ "
        after = "" if not prose or prose.startswith(_AFTER) else "\\ "
        new += f"{before}{_code(code)}{after}{_escaped(prose)}"
    return new.split("\n")


def _escaped(text: str) -> str:
    return _MARKED.sub(lambda sign: sign[1] or f"\\{sign[2]}", text)


def _code(text: str) -> str:
    """A code span; the full name of something that the site documents is a link to it."""
    target = link(text) if _NAME.fullmatch(text) else None
    return f":py:obj:`{text} <{target}>`" if target else f"``{text.strip()}``"


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = rewritten(contents(lines, name) if what == "module" and hasattr(obj, "__path__") else lines)


def _is_skipped(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """The fields of a named tuple that say nothing but their number."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def _leave_builtins(app: Sphinx, tree: nodes.document) -> None:
    """Annotations that name a builtin link to nothing; Sphinx would look for fields of that name, as `bytes`."""
    for reference in list(tree.findall(pending_xref)):
        if reference.get("reftype") == "class" and reference.get("reftarget") in vars(builtins):
            reference.replace_self(nodes.Text(reference["reftarget"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-skip-member", _is_skipped)
    app.connect("doctree-read", _leave_builtins)
    return {"parallel_read_safe": True}
