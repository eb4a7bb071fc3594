"""Four generated skills with one correct answer each, for the demo model and its evaluation.

`arithmetic` chains steps, `copy` moves letters, `sort` compares them, and `brackets` keeps a stack. A prompt ends in
` =`, and an answer starts with a space and ends in a newline, so that both tokenize independently. Prompts are split by
their hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from random import Random
from string import ascii_lowercase
from types import MappingProxyType

SPLITS = ("train", "heldout")
MIN_VALUE, MAX_VALUE, MAX_OPERAND = 10, 99, 9
_HELDOUT_BYTES = 32  # of the 256 values of the hash's first byte: one prompt in eight is held out
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Example:
    """A question with its correct answer; `prompt + answer` is the document."""

    task: str
    prompt: str
    answer: str

    @property
    def text(self) -> str:
        return self.prompt + self.answer


def assign_split(prompt: str) -> str:
    """Return `train` or `heldout`, depending on the hash of the prompt.

    >>> assign_split("calc 17+5-3 =")
    'train'
    """
    return "heldout" if sha256(prompt.encode()).digest()[0] < _HELDOUT_BYTES else "train"


def _arithmetic(random: Random) -> Example:
    value = random.randint(MIN_VALUE, MAX_VALUE)
    question, values = str(value), []
    for _ in range(random.randint(2, 4)):
        operand = random.randint(1, MAX_OPERAND)
        allowed = [sign for sign in (1, -1) if MIN_VALUE <= value + sign * operand <= MAX_VALUE]
        sign = random.choice(allowed)
        value += sign * operand
        question += f"{'+' if sign > 0 else '-'}{operand}"
        values.append(str(value))
    return _example("arithmetic", f"calc {question}", values)


def _copy(random: Random) -> Example:
    letters = random.choices(ascii_lowercase, k=random.randint(4, 8))
    word = random.choice(("copy", "reverse"))
    return _example("copy", f"{word} {' '.join(letters)}", letters if word == "copy" else letters[::-1])


def _sort(random: Random) -> Example:
    letters = random.choices(ascii_lowercase, k=random.randint(4, 7))
    return _example("sort", f"sort {' '.join(letters)}", sorted(letters))


def _brackets(random: Random) -> Example:
    length = random.randint(5, 12)
    shown: list[str] = []
    still_open: list[str] = []
    while len(shown) < length or not still_open:
        if still_open and (len(still_open) == 6 or random.random() < 0.45):
            shown.append(_CLOSING[still_open.pop()])
        else:
            still_open.append(random.choice("([{"))
            shown.append(still_open[-1])
    return _example("brackets", f"close {' '.join(shown)}", [_CLOSING[mark] for mark in reversed(still_open)])


def _example(task: str, question: str, answer: list[str]) -> Example:
    return Example(task, f"{question} =", f" {' '.join(answer)}\n")


_DRAWS: Mapping[str, Callable[[Random], Example]] = MappingProxyType(
    {"arithmetic": _arithmetic, "copy": _copy, "sort": _sort, "brackets": _brackets}
)
TASKS = tuple(_DRAWS)


def draw_example(task: str, split: str, random: Random) -> Example:
    while True:
        example = _DRAWS[task](random)
        if assign_split(example.prompt) == split:
            return example


def draw_examples(task: str, split: str, count: int, seed: int = 0) -> list[Example]:
    r"""Draw `count` distinct examples of `task` from `split`. A larger `count` only appends examples.

    >>> [example.text for example in draw_examples("sort", "heldout", 1, seed=0)]  # doctest: +ELLIPSIS
    ['sort ... = ...\n']
    """
    return list(islice(_distinct(task, split, Random(f"{task}/{split}/{seed}")), count))


def _distinct(task: str, split: str, random: Random) -> Iterator[Example]:
    seen: set[str] = set()
    while True:
        example = draw_example(task, split, random)
        if example.prompt not in seen:
            seen.add(example.prompt)
            yield example
