"""Locate the frozen mutants in a tree whose files were moved and whose names were changed.

The definition that contains a mutant is compared with every definition of the tree by the forms of the statements
(which renames preserve), the words of their texts, and the names of file and definition; of two that are
equally similar, the one in the file that most of the old file's mutants moved to is used. In the best, the statement is
the one of the same form at the same position.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from tools.mutation.mutants import Change, Mutant, changes_in
from tools.mutation.statements import Definition, Statement, at, definitions, definitions_in

LIKE = 0.6  # 1 for an unchanged definition
CLOSEST = 40  # definitions that are compared in full, of those that share most words and forms
TOGETHER = 0.1  # added where all other mutants of the old file are in the same new one
ALONE = 0.85  # what a statement's words have to share, where its definition was taken apart


@dataclass(frozen=True)
class Location:
    """The location of a mutant in a tree: file, definition, lines of the statement, and change."""

    file: str
    definition: str
    lines: range
    change: Change


@dataclass(frozen=True)
class Missing:
    """The reason that a mutant was not found in a tree."""

    why: str


def locate(mutants: Sequence[Mutant], tree: Path) -> dict[int, Location | Missing]:
    """Locate each mutant in `tree`, by its number."""
    index = Index(definitions_in(tree))
    ranked = {mutant.id: _ranked(mutant, index) for mutant in mutants}
    went = _went(mutants, ranked)
    for mutant in mutants:
        ranked[mutant.id].sort(key=lambda pair: -pair[0] - TOGETHER * went[mutant.file, pair[1].file])
    return {mutant.id: _locate(mutant, tree, index, ranked[mutant.id]) for mutant in mutants}


class Index:
    """An index of a tree's definitions for finding similar ones."""

    def __init__(self, found: Sequence[Definition]) -> None:
        self.definitions = found
        self._features = [_features(each.statements, each.forms) for each in found]

    def closest(self, texts: Sequence[str], forms: Sequence[str]) -> list[Definition]:
        """Return the definitions that share most with the given statements."""
        wanted = Counter(forms) + Counter(_words("\n".join(texts)))
        size = wanted.total()
        shares = [2 * (wanted & other).total() / (size + other.total()) for other in self._features]
        order = sorted(range(len(shares)), key=lambda number: -shares[number])
        return [self.definitions[number] for number in order[:CLOSEST]]


def _ranked(mutant: Mutant, index: Index) -> list[tuple[float, Definition]]:
    """Return the definitions most similar to the mutant's, best first."""
    closest = index.closest(mutant.statements, mutant.forms)
    return sorted(((_likeness(mutant, each), each) for each in closest), key=lambda pair: -pair[0])


def _went(
    mutants: Sequence[Mutant], ranked: Mapping[int, list[tuple[float, Definition]]]
) -> defaultdict[tuple[str, str], float]:
    """Map old and new file to the share of mutated definitions that match best in the new file."""
    best = {(mutant.file, mutant.definition): ranked[mutant.id][0][1].file for mutant in mutants}
    totals = Counter(old for old, _ in best)
    shares: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (old, _), new in best.items():
        shares[old, new] += 1 / totals[old]
    return shares


def _locate(mutant: Mutant, tree: Path, index: Index, ranked: list[tuple[float, Definition]]) -> Location | Missing:
    matched = _match(mutant, index, ranked)
    if isinstance(matched, Missing):
        return matched
    definition, number = matched
    statement = definition.statements[number]
    source = (tree / definition.file).read_text("utf-8")
    there = definitions(definition.file, source)
    own = next(each for each in there if each.statements and each == definition)
    alike = changes_in(own.statements[number], there, source, mutant.operator)
    if len(alike) <= mutant.nth:
        return Missing(f"{definition.file}:{statement.start[0]} has no such operator")
    mutated = alike[mutant.nth].applied(source)
    if mutated is None:
        return Missing(f"{definition.file}:{statement.start[0]} is the same program with the change")
    changed, changed_number = at(definitions(definition.file, mutated), alike[mutant.nth].start)
    if changed.statements[changed_number].form != mutant.mutated_form:
        return Missing(f"{definition.file}:{statement.start[0]} is another program with the change")
    return Location(definition.file, definition.name, statement.lines, alike[mutant.nth])


def _match(mutant: Mutant, index: Index, ranked: list[tuple[float, Definition]]) -> tuple[Definition, int] | Missing:
    likeness, definition = ranked[0]
    if likeness >= LIKE:
        number = _statement(mutant, definition)
        if number is not None:
            return definition, number
    alone = [
        (_share(_words(mutant.text), _words(statement.text)), number, definition)
        for definition in index.definitions
        for number, statement in enumerate(definition.statements)
        if statement.form == mutant.forms[mutant.index]
    ]
    alone = sorted((each for each in alone if each[0] >= ALONE), key=lambda each: -each[0])
    if alone and (len(alone) == 1 or alone[0][0] > alone[1][0]):
        return alone[0][2], alone[0][1]
    return Missing(f"closest: {definition.file} {definition.name}, likeness {likeness:.2f}")


def _likeness(mutant: Mutant, other: Definition) -> float:
    """Compute similarity (0 to 1): 1/2 forms, 1/3 words, the rest the names of file and definition."""
    forms = SequenceMatcher(None, mutant.forms, other.forms, autojunk=False).ratio()
    words = _share(_words("\n".join(mutant.statements)), _words(other.text))
    names = _share(_words(f"{mutant.file} {mutant.definition}"), _words(f"{other.file} {other.name}"))
    return 0.5 * forms + 0.35 * words + 0.15 * names


def _statement(mutant: Mutant, other: Definition) -> int | None:
    """Find the mutant's statement in `other`: of the same form, aligned or with similar words."""
    matcher = SequenceMatcher(None, mutant.forms, other.forms, autojunk=False)
    for block in matcher.get_matching_blocks():
        if block.a <= mutant.index < block.a + block.size:
            return block.b + mutant.index - block.a
    same = [number for number, form in enumerate(other.forms) if form == mutant.forms[mutant.index]]
    return max(
        same, key=lambda number: _share(_words(mutant.text), _words(other.statements[number].text)), default=None
    )


def _features(statements: Sequence[Statement], forms: Sequence[str]) -> Counter[str]:
    return Counter(forms) + Counter(word for statement in statements for word in _words(statement.text))


def _words(text: str) -> list[str]:
    """Split a text into words; parts of a compound name count separately, since renames often keep some."""
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)


def _share(some: Sequence[str], others: Sequence[str]) -> float:
    """Compute the overlap (0 to 1) of two bags of words."""
    if not some and not others:
        return 1.0
    return 2 * (Counter(some) & Counter(others)).total() / (len(some) + len(others))
