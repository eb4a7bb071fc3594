"""Mutants: what Cosmic Ray may change in a file, and the frozen list of those that were drawn."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tools.mutation.statements import Definition, Position, Statement, at

LIST = Path(__file__).parent / "mutants.json"


@dataclass(frozen=True)
class Change:
    """One thing that an operator of Cosmic Ray may do in a file: its `occurrence`-th there, from `start` to `end`."""

    operator: str
    occurrence: int
    start: Position
    end: Position

    @property
    def family(self) -> str:
        """The operator, without what it replaces by what."""
        return self.operator.split("_")[0]

    def applied(self, source: str) -> str | None:
        """The text of the file with the change, None where that is no Python or the same program."""
        mutated = mutate_code(source, cosmic_ray.plugins.get_operator(self.operator)(), self.occurrence)
        try:
            compile(mutated, "mutant", "exec")
        except SyntaxError:
            return None
        return None if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)) else mutated


@dataclass(frozen=True)
class Mutant:
    """A change of one statement, so described that it can be located again after moves and renames.

    `file`, `definition`, `index` (of the statement in its definition) and `line` say where it was when it was drawn;
    `statements` are the texts of that definition and `forms` its statements without names. The change is the
    `nth` one of `operator` in the statement; it makes the statement `mutated`, whose form is `mutated_form`.
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

    @property
    def text(self) -> str:
        """The statement as it was."""
        return self.statements[self.index]


def changes(source: str, operators: Iterable[str] | None = None) -> list[Change]:
    """Everything that these operators, or all that need no arguments, may change in the text of a file."""
    nodes = list(ast_nodes(get_ast(source)))
    result = []
    for name in operators or cosmic_ray.plugins.operator_names():
        operator_class = cosmic_ray.plugins.get_operator(name)
        if operator_class.arguments():
            continue
        operator = operator_class()
        sites = ((node, site) for node in nodes for site in operator.mutation_positions(node))
        for occurrence, (node, (start, end)) in enumerate(sites):
            # A lone star among parameters, which Cosmic Ray takes for a multiplication.
            if node.parent is None or node.parent.type not in ("parameters", "lambdef"):
                result.append(Change(name, occurrence, start, end))
    return result


def changes_in(statement: Statement, there: list[Definition], source: str, operator: str) -> list[Change]:
    """What this operator may change in one statement of a file whose definitions are `there`, in order."""
    found = []
    for change in changes(source, [operator]):
        definition, index = at(there, change.start)
        if definition.statements[index] is statement:
            found.append(change)
    return sorted(found, key=lambda change: (change.start, change.occurrence))


def read(path: Path = LIST) -> list[Mutant]:
    """The frozen list."""
    kept = json.loads(path.read_text("utf-8"))["mutants"]
    return [Mutant(**{**each, "statements": tuple(each["statements"]), "forms": tuple(each["forms"])}) for each in kept]


def origins(path: Path = LIST) -> list[dict[str, object]]:
    """Of each drawing of the frozen list: the commit, the seed, the number of sites, and its first mutant."""
    kept: list[dict[str, object]] = json.loads(path.read_text("utf-8"))["about"]
    return kept


def write(mutants: Iterable[Mutant], about: Sequence[Mapping[str, object]], path: Path = LIST) -> None:
    """Keep the mutants that were drawn, one a line, with what they were drawn from."""
    drawings, drawn = (
        ",\n".join(json.dumps(each, ensure_ascii=False) for each in part)
        for part in (about, (asdict(mutant) for mutant in mutants))
    )
    path.write_text(f'{{"about": [\n{drawings}\n], "mutants": [\n{drawn}\n]}}\n', "utf-8")
