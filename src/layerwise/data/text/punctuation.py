"""Punctuation of a line of English text: detached signs joined again, quotation marks and encodings made even.

Two strengths, those with which ELC-BERT's authors prepared BabyLM's corpora (Charpentier and Samuel 2023): `repaired`
mends encodings alone (ftfy), `normalised` also white space around signs, detached contractions, double quotes and
typographic signs (sacremoses' port of Moses' normalization). Both libraries are those of the authors; they come with
the extra `layerwise[babylm]`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

from layerwise.errors import DataError

_CAPITAL = "A-ZÀ-ÖØ-Þ"
_MISSING = re.compile(
    rf"(?<=\.)(?=[{_CAPITAL}(\[{{])"  # He ran.She hid
    r"|(?<=[?!…’])(?=[^\W_]|[(\[{])"
    r"|(?<=\.\.\.)(?=[^\s.])"
    r"|(?<=,)(?=[^\W\d_])"
    r"|(?<=[;)\]}%])(?=[^\W_])"
    r"|(?<=:)(?<!\d:)(?=\S)|(?<=\d:)(?=[^\s\d])"  # not in 12:30
)
"""Where a space belongs and none stands."""

_SUPERFLUOUS = re.compile(r"(?<=[(\[{])\s+|\s+(?=[.;:?!…,’)\]}])|(?<=[$£€])\s+(?=\d)|(?<=\d)\s+(?=%)")
"""A space where none belongs."""

_ENDINGS = ("n't", "'ll", "'re", "'ve", "'m", "'s", "'d")
_CONTRACTION = re.compile(rf"(?<=\w) (?=(?:{'|'.join((*_ENDINGS, *(each.upper() for each in _ENDINGS)))})[ ,.])")
"""The space before the ending of a contraction, where a space, a comma or a full stop follows it."""

_ALWAYS_MOVED = 2
"""So many double quotes of a line are moved whatever their number; beyond these at most two in three."""


def repaired(line: str) -> str:
    """The line with its encoding mended and its quotes straight, without space around it.

    >>> repaired(" itâ€™s “late” ")
    'it\\'s "late"'

    Raises `DataError` where ftfy is not installed.
    """
    fixed: str = _ftfy().fix_text(line)
    return fixed.strip()


def normalised(line: str) -> str:
    """The line with even punctuation, then `repaired`.

    >>> normalised("Well , I do n't know ( yet ) .He is 12 % taller — at 12:30")
    "Well, I don't know (yet). He is 12% taller - at 12:30"

    Raises `DataError` where ftfy or sacremoses is not installed.
    """
    even: str = _moses().normalize(spaced_quotes(joined_contractions(spaced_signs(line))))
    return repaired(even)


def spaced_signs(line: str) -> str:
    """The line with a space behind signs that end something and none where none is written.

    >>> spaced_signs("Who ?Me,you ; and [ 3 ]others at $ 5")
    'Who? Me, you; and [3] others at $5'
    """
    return _SUPERFLUOUS.sub("", _MISSING.sub(" ", line))


def joined_contractions(line: str) -> str:
    """The line with the endings of contractions at their words, where a space, a comma or a full stop follows them.

    >>> joined_contractions("I could n't 've, you 'd.")
    "I couldn't've, you'd."
    """
    return _CONTRACTION.sub("", line)


def spaced_quotes(line: str) -> str:
    """The line with a space before each opening and after each closing double quote, and none inside.

    The first quote opens, the second closes, and so on. The line stays as it is where their number is odd, where
    nothing stands between two of them, and where more than two and more than two in three would have to be moved:
    there it is not known which of them opens.

    >>> spaced_quotes('he said" come "and left'), spaced_quotes('5" and 6')
    ('he said "come" and left', '5" and 6')
    """
    count = line.count('"')
    if not count or count % 2 or '""' in line or '" "' in line:
        return line
    pieces = (piece.strip() if at % 2 else f" {piece.strip()} " for at, piece in enumerate(line.split('"')))
    even = '"'.join(pieces).strip()
    moved = sum(before != after for before, after in zip(_beside_quotes(line), _beside_quotes(even), strict=True))
    return line if moved > max(_ALWAYS_MOVED, 2 * count / 3) else even


def _beside_quotes(line: str) -> list[tuple[bool, bool]]:
    """Of every double quote, whether a space or an end of the line stands before and behind it."""
    padded = f" {line} "
    return [(padded[at - 1] == " ", padded[at + 1] == " ") for at, sign in enumerate(padded) if sign == '"']


@cache
def _ftfy() -> Any:
    return _library("ftfy")


@cache
def _moses() -> Any:
    """Moses' normalization of English punctuation as the authors set it."""
    return _library("sacremoses").MosesPunctNormalizer(lang="en", penn=False)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise DataError(
            f"--clean needs {name}, which is not installed ({error}): "
            'pip install "layerwise[babylm]", or leave --clean out'
        ) from error
