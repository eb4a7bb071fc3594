"""Mutants: the changes of Cosmic Ray to a file, and the frozen list of drawn ones."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tools.mutation.statements import Definition, Position, Statement, at

LIST = Path(__file__).parent / "mutants.json"


@dataclass(frozen=True)
class Change:
    """A change by an operator of Cosmic Ray: its `occurrence`-th in the file, from `start` to `end`."""

    operator: str
    occurrence: int
    start: Position
    end: Position

    def applied(self, source: str) -> str | None:
        """Apply the change to the text of a file; `None` if the result is invalid or the same program."""
        mutated = mutate_code(source, cosmic_ray.plugins.get_operator(self.operator)(), self.occurrence)
        try:
            compile(mutated, "mutant", "exec")
        except SyntaxError:
            return None
        return None if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)) else mutated


@dataclass(frozen=True)
class Mutant:
    """A change of one statement, described so that it can be located after moves and renames.

    `file`, `definition`, `index` (of the statement in its definition) and `line` are its original location;
    `statements` are the texts of that definition and `forms` its statements without names. The change is the
    `nth` one of `operator` in the statement; it makes the statement `mutated`, whose form is `mutated_form`. `killed`
    is whether the tests killed it in the last judgment of the list.
    """

    id: int
    file: str
    definition: str
    line: int
    index: int
    operator: str
    nth: int
    mutated: str
    mutated_form: str
    statements: tuple[str, ...]
    forms: tuple[str, ...]
    killed: bool

    @property
    def text(self) -> str:
        """The statement as it was."""
        return self.statements[self.index]


def changes(source: str, name: str) -> list[Change]:
    """Return all changes by the operator `name` to the text of a file."""
    operator = cosmic_ray.plugins.get_operator(name)()
    sites = ((node, site) for node in ast_nodes(get_ast(source)) for site in operator.mutation_positions(node))
    # A lone star among parameters is not a multiplication, which Cosmic Ray takes it for.
    return [
        Change(name, occurrence, start, end)
        for occurrence, (node, (start, end)) in enumerate(sites)
        if node.parent is None or node.parent.type not in ("parameters", "lambdef")
    ]


def changes_in(statement: Statement, there: list[Definition], source: str, operator: str) -> list[Change]:
    """Return the operator's changes to one statement of a file whose definitions are `there`, in order."""
    found = []
    for change in changes(source, operator):
        definition, index = at(there, change.start)
        if definition.statements[index] is statement:
            found.append(change)
    return sorted(found, key=lambda change: (change.start, change.occurrence))


def read(path: Path = LIST) -> list[Mutant]:
    """Read the frozen list."""
    kept = json.loads(path.read_text("utf-8"))
    return [Mutant(**{**each, "statements": tuple(each["statements"]), "forms": tuple(each["forms"])}) for each in kept]
