"""Packing: texts of unlike length in rows of one length, so that almost no padding is computed.

Best fit, longest first (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"). Windows of the emptiest rows
are cut to fill others up to `FILL`; texts with an answer stay whole. Positions begin at 0 in each text, which keeps
attention inside it, and its first token is not predicted.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import torch

from layerwise.data.batches import labelled
from layerwise.data.splits import Example, Examples
from layerwise.data.text.tokens import Window

FILL = 0.98
"""The share of the positions of all rows that is to hold tokens."""

_SHORTEST = 8

Row = list[Window]


class PackedWindows(Examples):
    """Rows of `windows` with their ids as labels; a model of `...ForCausalLM` shifts them."""

    def __init__(self, rows: Sequence[Sequence[Window]]) -> None:
        self.rows = tuple(map(tuple, rows))
        self.windows = tuple(window for row in self.rows for window in row)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:
        """`input_ids`, `labels` and `position_ids`, each int64 (seq,)."""
        # A window's first token is never scored, so no text is predicted from another.
        rows = [(*labelled(window), torch.arange(len(window.ids), device="cpu")) for window in self.rows[index]]
        ids, labels, positions = map(torch.cat, zip(*rows, strict=True))
        return {"input_ids": ids, "labels": labels, "position_ids": positions}


def packed(windows: Sequence[Window], length: int, seed: int = 0, start: int | None = None) -> PackedWindows:
    """The windows, none longer than `length`, in rows of at most `length` tokens.

    `start` is the token that every window begins with, if there is one; pieces begin with it too. Windows of equal
    length are taken in an order drawn from `seed`, so the same call makes the same rows.

    >>> rows = packed([Window(f"d{n}", "text", 0, (1,) * n, 1, n) for n in (6, 5, 3, 2)], 8).rows
    >>> [[len(window.ids) for window in row] for row in rows]
    [[6, 2], [5, 3]]
    """
    order = Random(f"{seed}/packing").sample(range(len(windows)), len(windows))
    order.sort(key=lambda number: -len(windows[number].ids))
    rows = _best_fit([windows[number] for number in order], length)
    return PackedWindows(_filled(rows, length, start))


def _best_fit(windows: Sequence[Window], length: int) -> list[Row]:
    rows: list[Row] = []
    rooms: list[int] = []  # the sizes of room that some row has, ascending
    numbers: dict[int, list[int]] = {}  # the rows that have it
    for window in windows:
        size = len(window.ids)
        rank = bisect_left(rooms, size)
        if rank == len(rooms):
            number, room = len(rows), length
            rows.append([])
        else:
            room = rooms[rank]
            number = numbers[room].pop()
            if not numbers[room]:
                del numbers[room], rooms[rank]
        rows[number].append(window)
        left = room - size
        if left:
            if left not in numbers:
                numbers[left] = []
                insort(rooms, left)
            numbers[left].append(number)
    return rows


def _filled(rows: list[Row], length: int, start: int | None) -> list[Row]:
    tokens = sum(len(window.ids) for row in rows for window in row)
    rows = sorted(rows, key=lambda row: -sum(len(window.ids) for window in row))
    while len(rows) > 1 and tokens < FILL * length * len(rows):
        spread = _spread(rows[:-1], rows[-1], length, start)
        if spread is None:
            break
        rows = spread
    return rows


def _spread(rows: list[Row], emptiest: Row, length: int, start: int | None) -> list[Row] | None:
    gaps = [(-(length - sum(len(window.ids) for window in row)), number) for number, row in enumerate(rows)]
    heapq.heapify(gaps)
    added: dict[int, Row] = {}
    waiting = list(emptiest)
    while waiting:
        window = waiting.pop()
        if not gaps:
            return None
        gap, number = heapq.heappop(gaps)
        room = -gap
        if len(window.ids) > room:
            first, rest = _cut(window, room, start)
            if first is None or rest is None:
                return None
            waiting.append(rest)
            window = first
        added.setdefault(number, []).append(window)
        if room > len(window.ids):
            heapq.heappush(gaps, (len(window.ids) - room, number))
    return [[*row, *added.get(number, ())] for number, row in enumerate(rows)]


def _cut(window: Window, room: int, start: int | None) -> tuple[Window | None, Window | None]:
    begins = start is not None and window.ids[0] == start
    is_plain = window.scored_from == 1 and window.scored_until == len(window.ids) and window.masked is None
    room = min(room, len(window.ids) - _SHORTEST)
    if not is_plain or room < _SHORTEST:
        return None, None
    first = replace(window, ids=window.ids[:room], scored_until=room)
    rest = (*window.ids[:1], *window.ids[room:]) if begins else window.ids[room:]
    return first, replace(window, ids=rest, scored_until=len(rest))
