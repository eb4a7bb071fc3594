"""Continuations as notes of their run: what a model wrote under a plan, as one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from layerwise.results.rows import Continuation, Note

CONTINUATION = "continuation"
"""The measure of the notes that hold continuations."""


def note_text(continuation: Continuation) -> str:
    """The continuation as the text of a note.

    >>> note_text(Continuation("0-3", "a b", " c", 1, 1))
    '{"plan": "0-3", "prompt": "a b", "text": " c", "tokens": 1, "same": 1}'
    """
    return json.dumps(asdict(continuation), ensure_ascii=False)


def read_continuations(notes: Iterable[Note]) -> tuple[Continuation, ...]:
    """The continuations among the notes of a run; a note of another form is passed over.

    >>> kept = Continuation("0-3", "a b", " c", 1, 1)
    >>> read_continuations([Note("plans", "left out"), Note("continuation", note_text(kept))]) == (kept,)
    True
    """
    texts = (_read(note.text) for note in notes if note.measure == CONTINUATION)
    return tuple(each for each in texts if each is not None)


def _read(text: str) -> Continuation | None:
    try:
        each = Continuation(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (each.plan, each.prompt, each.text)
    counts = (each.tokens, each.same)
    known = all(isinstance(part, str) for part in texts) and all(type(count) is int for count in counts)
    return each if known else None
