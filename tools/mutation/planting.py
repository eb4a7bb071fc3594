"""Plant mutants in the texts of files, several at once if they change different lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile

from tools.mutation.locate import Location
from tools.mutation.tree_copy import TreeCopy


def fitting(copy: TreeCopy, locations: Mapping[int, Location]) -> list[int]:
    """Select mutants that can be planted in one program: no two change the same line."""
    group: list[int] = []
    for name in locations:
        if planted_texts(copy, [locations[each] for each in (*group, name)]) is not None:
            group.append(name)
    return group


def planted_texts(copy: TreeCopy, locations: Sequence[Location]) -> dict[str, str] | None:
    """Apply changes to the texts of files; `None` if two change the same line."""
    texts = {}
    for file in {location.file for location in locations}:
        source = (copy.original / file).read_text("utf-8")
        lines = source.splitlines(keepends=True)
        mutated = [location.change.applied(source) for location in locations if location.file == file]
        edits = sorted(_edit(lines, text.splitlines(keepends=True)) for text in mutated if text is not None)
        if any(before[1] > after[0] for before, after in pairwise(edits)):
            return None
        for first, end, new in reversed(edits):
            lines[first:end] = new
        texts[file] = "".join(lines)
    return texts


def _edit(lines: Sequence[str], mutated: Sequence[str]) -> tuple[int, int, list[str]]:
    """Return the lines that a change replaces (end exclusive) and their replacement."""
    first = next((at for at, (one, other) in enumerate(zip(lines, mutated, strict=False)) if one != other), 0)
    ends = zip(reversed(lines[first:]), reversed(mutated[first:]), strict=False)
    same = takewhile(lambda pair: pair[0] == pair[1], ends)
    tail = sum(1 for _ in same)
    return first, len(lines) - tail, list(mutated[first : len(mutated) - tail])
