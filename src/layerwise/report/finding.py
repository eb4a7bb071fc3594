"""A finding: a question, its answer in words and numbers, and how firm the answer is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["resolved", "unresolved", "described"]


class Number(str):
    """A number inside a sentence, set apart when it is shown."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its answer in pieces (numbers marked as `Number`), and how firm the answer is."""

    question: str
    answer: tuple[str, ...]
    state: State

    @property
    def text(self) -> str:
        """The answer as plain text."""
        return "".join(self.answer)
