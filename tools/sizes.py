"""How large the code is: lines and files by room, its largest parts, and imports that run in circles or upwards.

`python -m tools.sizes` prints the figures beside those of `tests/laws/sizes.json`, the ceilings that a test holds;
`python -m tools.sizes --write` lowers the ceilings to the figures, and raises none. A ceiling that has to rise is
edited by hand, with a sentence in `why`.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = ROOT / "src" / "layerwise", ROOT / "tests"
CEILINGS = TESTS / "laws" / "sizes.json"
TESTED = ("report", "experiments", "cli", "results", "golden")
"""Rooms whose tests are counted by themselves."""

REPORT = (
    "text",
    "finding",
    "data",
    "show",
    "arms",
    "figures",
    "marks",
    "kind",
    "trained",
    "derived",
    "claims",
    "side_by_side",
    "kinds",
    "writers",
    "page",
)
"""The floors of the report, the lowest first; a file beside the folders stands on the floor of its name."""


def sources(folder: Path) -> list[Path]:
    """The Python files below a folder."""
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def lines(paths: list[Path]) -> int:
    """All lines of some files, comments and docstrings included."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def figures() -> dict[str, Any]:
    """Every figure that has a ceiling."""
    package = sources(PACKAGE)
    rooms: dict[str, list[Path]] = {}
    for path in package:
        parts = path.relative_to(PACKAGE).parts
        rooms.setdefault(parts[0] if len(parts) > 1 else "top level", []).append(path)
    tests = {name: sources(TESTS / name) for name in TESTED}
    return {
        "rooms": {name: {"lines": lines(paths), "files": len(paths)} for name, paths in sorted(rooms.items())},
        "package": {"lines": lines(package), "files": len(package)},
        "tests": {**{name: lines(paths) for name, paths in tests.items()}, "all": lines(sources(TESTS))},
        "largest file": max(lines([path]) for path in package),
        "most files in a folder": max(Counter(path.parent for path in package).values()),
        "most parameters": max(most for path in package for most in parameters(path)),
        "circles": len(circles()),
        "upward imports in report": len(list(upward())),
    }


def parameters(path: Path) -> Iterator[int]:
    """How many parameters each function of a file has."""
    for node in _statements(tree(path).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            yield len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
    yield 0


def circles() -> list[list[str]]:
    """Groups of files that import each other, those imports inside functions too; facades (`__init__`) left out."""
    graph = imports()
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        _visit(start, graph, seen, order)
    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    seen.clear()
    groups = []
    for start in reversed(order):
        group: list[str] = []
        _visit(start, back, seen, group)
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _visit(start: str, graph: Mapping[str, set[str]], seen: set[str], order: list[str]) -> None:
    """Add `start` and what is reached from it to `order`, each once all that it reaches is there."""
    waiting = [(start, iter(sorted(graph[start])))] if start not in seen else []
    seen.add(start)
    while waiting:
        name, targets = waiting[-1]
        following = next((target for target in targets if target not in seen), None)
        if following is None:
            order.append(name)
            waiting.pop()
        else:
            seen.add(following)
            waiting.append((following, iter(sorted(graph[following]))))


def upward() -> Iterator[tuple[str, str]]:
    """Imports within the report from a lower floor to a higher one."""
    for name, targets in imports().items():
        for target in targets:
            low, high = _floor(name), _floor(target)
            if low is not None and high is not None and low < high:
                yield name, target


def _floor(name: str) -> int | None:
    parts = name.split(".")
    return REPORT.index(parts[2]) if parts[1] == "report" and len(parts) > 2 and parts[2] in REPORT else None


@cache
def imports() -> dict[str, set[str]]:
    """Which modules each module of the package imports; facades left out."""
    modules = {_name(path): path for path in sources(PACKAGE) if path.name != "__init__.py"}
    return {
        name: {each for each in _imported(path) if each in modules and each != name} for name, path in modules.items()
    }


def _imported(path: Path) -> Iterator[str]:
    for node in _statements(tree(path).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _name(path: Path) -> str:
    return ".".join(("layerwise", *path.relative_to(PACKAGE).with_suffix("").parts))


@cache
def tree(path: Path) -> ast.Module:
    """A file as syntax; parsed once in a process, for all that look at it."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every statement at any depth: imports and functions are some, and expressions are most of the syntax."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, ())
            if isinstance(inner, list):  # that of a conditional expression or a lambda is none
                yield from _statements(inner)


def above(measured: Mapping[str, Any], ceilings: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Each figure that is above its ceiling, or has none."""
    for name, value in measured.items():
        label = f"{where}{name}"
        if isinstance(value, Mapping):
            yield from above(value, ceilings.get(name, {}), f"{label}, ")
        elif name not in ceilings:
            yield f"{label} is {value:,} and has no ceiling"
        elif value > ceilings[name]:
            yield f"{label} is {value:,}, above {ceilings[name]:,}"


def lowered(measured: Mapping[str, Any], ceilings: Mapping[str, Any]) -> dict[str, Any]:
    """The ceilings, each no higher than its figure; rooms that are gone have none."""
    return {
        name: lowered(value, ceilings.get(name, {}))
        if isinstance(value, Mapping)
        else min(value, ceilings.get(name, value))
        for name, value in measured.items()
    }


def main() -> int:
    """Print the figures, or lower the ceilings to them; the status is 1 where one is above its ceiling."""
    parser = argparse.ArgumentParser(prog="python -m tools.sizes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="lower the ceilings to the figures")
    measured, ceilings = figures(), json.loads(CEILINGS.read_text()) if CEILINGS.is_file() else {}
    if parser.parse_args().write:
        kept = {"why": ceilings.get("why", {}), **lowered(measured, ceilings)}
        CEILINGS.write_text(json.dumps(kept, indent=1) + "\n")
    for name, each in measured["rooms"].items():
        print(f"{name:14} {each['lines']:>7,} lines {each['files']:>4} files")
    for name, value in measured.items():
        if name != "rooms":
            print(f"{name}: {value}")
    raised = list(above(measured, json.loads(CEILINGS.read_text())))
    print(*raised, sep="\n")
    return 1 if raised else 0


if __name__ == "__main__":
    sys.exit(main())
