"""The tools' own tests: `pytest tools/mutation`, where Cosmic Ray is installed. They are no part of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutation.draw import mutant_of
from tools.mutation.locate import Location, Missing, locate
from tools.mutation.mutants import Mutant, changes
from tools.mutation.planting import fitting, planted_texts
from tools.mutation.statements import MODULE, at, definitions
from tools.mutation.tree_copy import TreeCopy

OLD = '''
"""Sums."""

LIMIT = 3


class Bill:
    def total(self, parts: list[int], most: int = 4) -> int:
        """What is due."""
        if len(parts) > most and self.is_open:
            raise ValueError("too many")
        for part in parts:
            if part < 0:
                raise ValueError("negative")
        return sum(parts) - 1
'''
# Moved, renamed, its texts and its docstring rewritten, with one statement more and a neighbour of the same shape.
NEW = '''
MOST = 3


class CostEstimate:
    def of_rows(self, rows, bound=7):
        if len(rows) > bound and self.is_closed:
            raise ValueError("rows")
        return sum(rows) - 1

    def sum_of(self, terms: tuple[int, ...], bound: int = 4) -> int:
        """The sum in nats."""
        self.calls += 1
        if len(terms) > bound and self.started:
            raise ValueError(f"{len(terms)} terms; at most {bound}")
        for term in terms:
            if term < 0:
                raise ValueError("a term below zero")
        return sum(terms) - 1
'''


def drawn(operator: str, line: str) -> Mutant:
    """The first change of OLD by this operator on the line that begins with these words."""
    number = next(number for number, text in enumerate(OLD.splitlines(), 1) if text.strip().startswith(line))
    change = next(each for each in changes(OLD, [f"core/{operator}"]) if each.start[0] == number)
    return mutant_of(0, "src/package/bill.py", OLD, change)


def tree(folder: Path, text: str) -> Path:
    """A tree with one module, which holds `text`."""
    file = folder / "src" / "package" / "cost" / "estimate.py"
    file.parent.mkdir(parents=True)
    file.write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize(
    ("operator", "line", "result"),
    [
        ("NumberReplacer", "def total", "bound: int = 5)"),
        ("ReplaceAndWithOr", "if len", "len(terms) > bound or self.started"),
        ("ReplaceComparisonOperator_Lt_LtE", "if part", "if term <= 0:"),
        ("ZeroIterationForLoop", "for part", "for term in []:"),
        ("ReplaceBinaryOperator_Sub_Add", "return", "return sum(terms) + 1"),
    ],
)
def test_a_mutant_is_located_after_moves_and_renames(tmp_path: Path, operator: str, line: str, result: str) -> None:
    mutant = drawn(operator, line)
    location = locate([mutant], tree(tmp_path, NEW), {})[0]
    assert isinstance(location, Location)
    assert location.definition == "CostEstimate.sum_of"
    mutated = location.change.applied(NEW)
    assert mutated is not None
    assert result in next(text for text in mutated.splitlines() if text not in NEW.splitlines())


def test_what_is_no_longer_there_is_missing(tmp_path: Path) -> None:
    """Another number in the statement is another program, and so is a tree without the definition."""
    mutant = drawn("ReplaceBinaryOperator_Sub_Add", "return")
    assert isinstance(
        locate([mutant], tree(tmp_path / "a", NEW.replace("sum(terms) - 1", "sum(terms)")), {})[0], Missing
    )
    assert isinstance(locate([mutant], tree(tmp_path / "b", "NAME = 1\nOTHER = 2\n"), {})[0], Missing)


def test_a_move_that_was_written_down_is_followed(tmp_path: Path) -> None:
    mutant = drawn("ReplaceBinaryOperator_Sub_Add", "return")
    move = {
        "file": "src/package/cost/estimate.py",
        "definition": "CostEstimate.of_rows",
        "text": "return sum(rows) - 1",
    }
    location = locate([mutant], tree(tmp_path, NEW), {"0": move})[0]
    assert isinstance(location, Location)
    assert location.definition == "CostEstimate.of_rows"
    assert locate([mutant], tmp_path, {"0": {"gone": "no such sum"}})[0] == Missing("no such sum", gone=True)


def test_a_position_belongs_to_the_statement_that_began_last() -> None:
    there = definitions("bill.py", OLD)
    assert [each.name for each in there] == [MODULE, "Bill", "Bill.total"]
    definition, index = at(there, (13, 15))
    assert (definition.name, definition.statements[index].text) == ("Bill.total", "if part < 0:")


def test_mutants_of_different_lines_are_planted_together(tmp_path: Path) -> None:
    """Each changes the lines that it changes alone; two of one line do not fit."""
    mutants = [drawn("ReplaceBinaryOperator_Sub_Add", "return"), drawn("NumberReplacer", "LIMIT")]
    mutants += [drawn("ReplaceAndWithOr", "if len"), drawn("AddNot", "if len")]
    copy = TreeCopy(tmp_path)
    tree(copy.original, OLD)
    locations = {}
    for number, mutant in enumerate(mutants):
        location = locate([mutant], copy.original, {})[0]
        assert isinstance(location, Location)
        locations[number] = location
    assert fitting(copy, locations) == [0, 1, 2]
    texts = planted_texts(copy, [locations[0], locations[1], locations[2]])
    assert texts is not None
    changed = [
        line.strip() for line in texts["src/package/cost/estimate.py"].splitlines() if line not in OLD.splitlines()
    ]
    assert changed == ["LIMIT = 4", "if len(parts) > most or self.is_open:", "return sum(parts) + 1"]
    assert planted_texts(copy, [locations[2], locations[3]]) is None
