"""Paragraphs and sentences of a text.

Empty lines separate paragraphs, and so do line ends, unless the text is hard-wrapped: there the lines between two empty
ones are joined. The splitter of sentences is a rule of thumb for English: a full stop, question or exclamation mark
before white space and a capital or a digit ends one, unless the word before it is an abbreviation or an initial.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_EMPTY_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_SPACES = re.compile(r"[^\S\t]+")
_END = re.compile(r"""[.!?]+["')\]]*\s+(?=["'(\[]*[A-Z0-9])""")
_WORD = re.compile(r"[\w.]*")
_ABBREVIATIONS = """
    Mr Mrs Ms Dr Prof St Rev Capt Col Gen Lieut Hon Messrs Jr Sr No vs cf e.g i.e etc viz Fig fig Vol vol
    Jan Feb Aug Sept Oct Nov Dec
"""
_ABBREVIATED = frozenset(_ABBREVIATIONS.split())
_EVEN = 0.75
"""In a hard-wrapped text, how long at least half of the lines are that another follows, as a share of a long one."""


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each on one line, without those that hold nothing; tabs that begin a line stay.

    >>> paragraphs("A line\\nand its end.\\n\\nAnother."), paragraphs("One a line.\\nTwo.")
    (['A line and its end.', 'Another.'], ['One a line.', 'Two.'])

    >>> paragraphs("Yes.\\nNo.\\nI know who that was at the door.\\nWho?\\n\\nThe end.")
    ['Yes.', 'No.', 'I know who that was at the door.', 'Who?', 'The end.']
    """
    blocks = _EMPTY_LINES.split(text.rstrip().lstrip("\n "))
    if len(blocks) == 1 or not _are_wrapped(blocks):
        blocks = text.split("\n")
    return [joined for joined in (_stripped(_SPACES.sub(" ", block)) for block in blocks) if joined]


def _are_wrapped(blocks: Sequence[str]) -> bool:
    """Whether the lines of the blocks end where they were full: those that another follows are nearly as long."""
    lengths = sorted(len(line) for block in blocks for line in block.split("\n")[:-1])
    return not lengths or lengths[len(lengths) // 2] >= _EVEN * lengths[int(0.95 * len(lengths))]


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; joined by the white space between them they are the paragraph.

    >>> sentences("Mr. Fox ran. He hid! Why?")
    ['Mr. Fox ran.', 'He hid!', 'Why?']
    """
    pieces = []
    start = 0
    for end in _END.finditer(paragraph):
        if not _is_abbreviation(paragraph, start, end):
            pieces.append(_stripped(paragraph[start : end.end()]))
            start = end.end()
    return [*pieces, _stripped(paragraph[start:])]


def _stripped(text: str) -> str:
    """The text without white space around it; tabs before it stay, unless it is nothing but white space."""
    return text.rstrip().lstrip(" ")


def _is_abbreviation(paragraph: str, start: int, end: re.Match[str]) -> bool:
    if end[0].rstrip() != ".":
        return False
    word = _last_word(paragraph[start : end.start()])
    return word in _ABBREVIATED or (len(word) == 1 and word.isupper() and word != "I")


def _last_word(text: str) -> str:
    """What the text ends in that is made of letters, digits, `_` and full stops."""
    # Read from the end, since a search from the beginning tries every position of a long sentence.
    word = _WORD.match(text[::-1])
    assert word is not None
    return word[0][::-1]
