"""Draw mutants and add them to the frozen list: `python -m tools.mutation.draw`, before what is to be compared begins.

A site is a position in a file that a family of operators may change. Sites are drawn, each with the same chance, and of
each site one of its changes; changes of annotations, and those that leave the program as it is, are not drawn.
"""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
from collections import defaultdict
from pathlib import Path

from tools.mutation.mutants import LIST, Change, Mutant, changes, changes_in, origins, read, write
from tools.mutation.statements import Position, at, definitions

ROOMS = ("checkpoint", "data", "measure", "models", "plan", "search", "stack", "swarm", "train")
NUMBER = 200
SEED = 31


def files(package: Path) -> list[Path]:
    """What the mutants are drawn from."""
    return [file for room in ROOMS for file in sorted((package / room).rglob("*.py"))]


def draw(tree: Path, number: int, seed: int, first: int = 0) -> tuple[list[Mutant], int]:
    """`number` mutants of different sites, numbered from `first` in the order drawn, and the number of sites."""
    sites: defaultdict[tuple[str, Position, Position, str], list[Change]] = defaultdict(list)
    sources = {str(file.relative_to(tree)): file.read_text("utf-8") for file in files(tree / "src" / "layerwise")}
    for file, source in sources.items():
        hidden = _annotations(source)
        for change in changes(source):
            if not any(start <= change.start < end for start, end in hidden):
                sites[file, change.start, change.end, change.family].append(change)
    generator = random.Random(seed)
    order = sorted(sites)
    generator.shuffle(order)
    mutants: list[Mutant] = []
    for site in order:
        candidates = sites[site]
        generator.shuffle(candidates)
        chosen = next((change for change in candidates if change.applied(sources[site[0]]) is not None), None)
        if chosen is not None:
            mutants.append(mutant_of(first + len(mutants), site[0], sources[site[0]], chosen))
        if len(mutants) == number:
            break
    return mutants, len(sites)


def mutant_of(name: int, file: str, source: str, change: Change) -> Mutant:
    """The description of a change that outlives moves and renames."""
    there = definitions(file, source)
    definition, index = at(there, change.start)
    alike = changes_in(definition.statements[index], there, source, change.operator)
    mutated_source = change.applied(source)
    assert mutated_source is not None
    mutated, mutated_index = at(definitions(file, mutated_source), change.start)
    return Mutant(
        name,
        file,
        definition.name,
        change.start[0],
        index,
        change.operator,
        alike.index(change),
        mutated.statements[mutated_index].text,
        mutated.statements[mutated_index].form,
        tuple(statement.text for statement in definition.statements),
        definition.forms,
    )


def _annotations(source: str) -> list[tuple[Position, Position]]:
    """Where annotations stand: they are never evaluated, so that a change of one changes nothing."""
    nodes = [
        annotation
        for node in ast.walk(ast.parse(source))
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if annotation is not None
    ]
    return [((each.lineno, each.col_offset), (each.end_lineno, each.end_col_offset)) for each in nodes]


def main() -> None:
    """Draw from a tree: the one that this file lies in, unless another is named."""
    parser = argparse.ArgumentParser(description="Draw mutants and add them to the frozen list.")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[2], help="the project to draw from")
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--list", type=Path, default=LIST, help="where they are written")
    arguments = parser.parse_args()
    tree, frozen = arguments.tree, arguments.list
    before = read(frozen) if frozen.exists() else []
    drawn, sites = draw(tree, arguments.number, arguments.seed, len(before))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, capture_output=True, text=True)
    origin = {"commit": commit.stdout.strip(), "seed": arguments.seed, "sites": sites, "first": len(before)}
    write([*before, *drawn], [*(origins(frozen) if before else []), origin], frozen)


if __name__ == "__main__":
    main()
