"""The definitions of a Python file and their statements, in a form independent of names.

The *form* of a statement is a digest of its syntax tree without identifiers, annotations and strings, which
renames preserve. The *text* is the statement as `ast.unparse` writes it, so that line breaks and comments do
not matter.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

MODULE = "<module>"
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_ANNOTATIONS = ("annotation", "returns", "type_comment", "type_params")

Position = tuple[int, int]


@dataclass(frozen=True)
class Statement:
    """A simple statement, or the head of a compound one; `start` is a line from 1 and a column in characters."""

    text: str
    form: str
    start: Position
    last_line: int

    @property
    def lines(self) -> range:
        """Its lines."""
        return range(self.start[0], self.last_line + 1)


@dataclass(frozen=True)
class Definition:
    """A function, a class or a module without the definitions inside it; the statements begin with its head."""

    file: str
    name: str
    statements: tuple[Statement, ...]

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """The forms of its statements, in order."""
        return tuple(statement.form for statement in self.statements)

    @cached_property
    def text(self) -> str:
        """Its statements, one per line."""
        return "\n".join(statement.text for statement in self.statements)


def definitions(file: str, source: str) -> list[Definition]:
    """Parse the definitions in the text of a file, the module first."""
    lines = source.splitlines()
    module = ast.parse(source)
    return [
        Definition(file, name, tuple(_statement(node, lines) for node in nodes))
        for name, nodes in _definitions(MODULE, module.body, [])
    ]


def definitions_in(tree: Path, folders: tuple[str, ...] = ("src",)) -> list[Definition]:
    """Parse the definitions of every Python file in these directories of `tree`, by relative file name."""
    files = sorted(file for folder in folders for file in (tree / folder).rglob("*.py"))
    return [each for file in files for each in definitions(str(file.relative_to(tree)), file.read_text("utf-8"))]


def at(found: list[Definition], position: Position) -> tuple[Definition, int]:
    """Find the definition at a position, and the index of the last statement that begins there."""
    begun = (
        (statement.start, definition, index)
        for definition in found
        for index, statement in enumerate(definition.statements)
        if statement.start <= position
    )
    _, definition, index = max(begun, key=lambda each: each[0])
    return definition, index


def form(node: ast.AST) -> str:
    """Hash `shape`."""
    return hashlib.sha256(shape(node).encode()).hexdigest()[:10]


def shape(node: ast.AST) -> str:
    """Return the syntax tree without identifiers, annotations and strings."""
    parts = []
    for name, value in ast.iter_fields(node):
        if name in _ANNOTATIONS or name in ("ctx", "kind"):
            continue
        if isinstance(value, list):
            parts.append("[" + ",".join(shape(each) if isinstance(each, ast.AST) else "_" for each in value) + "]")
        elif isinstance(value, ast.AST):
            parts.append(shape(value))
        else:
            parts.append("_" if isinstance(value, (str, bytes)) else repr(value))
    return f"{type(node).__name__}({','.join(parts)})"


def head(node: ast.AST) -> ast.AST:
    """Return a statement without the statements inside it."""
    fields = {
        name: [] if isinstance(value, list) and value and isinstance(value[0], _BLOCKS) else value
        for name, value in ast.iter_fields(node)
    }
    return type(node)(**fields)


def _definitions(name: str, body: list[ast.stmt], nodes: list[ast.AST]) -> Iterator[tuple[str, list[ast.AST]]]:
    """Yield the name and nodes of a definition, then of nested definitions."""
    inner: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = []
    nodes = nodes + list(_nodes(_without_docstring(body), inner))
    yield name, nodes
    for definition in inner:
        qualified = definition.name if name == MODULE else f"{name}.{definition.name}"
        yield from _definitions(qualified, definition.body, [definition])


def _nodes(
    body: list[ast.stmt], inner: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]
) -> Iterator[ast.AST]:
    """Yield the statements of a body in source order; nested definitions are added to `inner` instead."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner.append(node)
            continue
        yield node
        for value in (value for _, value in ast.iter_fields(node) if isinstance(value, list)):
            for block in value:
                if isinstance(block, ast.stmt):
                    yield from _nodes([block], inner)
                elif isinstance(block, (ast.ExceptHandler, ast.match_case)):
                    yield block
                    yield from _nodes(block.body, inner)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _statement(node: ast.AST, lines: list[str]) -> Statement:
    only = head(node)
    inner = [_span(each) for each in ast.walk(only) if each is not only and hasattr(each, "lineno")]
    own = [_span(node)] if hasattr(node, "lineno") else []
    # The end of a compound statement is that of its body, so its head ends where the last part of the head does.
    ends = inner if _is_compound(node) else own + inner
    line, column = min(start for start, _ in own + inner)
    characters = len(lines[line - 1].encode()[:column].decode())
    if any(_span(each)[0] == (line, column) for each in getattr(node, "decorator_list", ())):
        characters -= 1  # the @ of a decorator is not part of its node
    last = max((end for _, end in ends), default=line)
    return Statement(ast.unparse(ast.fix_missing_locations(only)), form(only), (line, characters), max(last, line))


def _is_compound(node: ast.AST) -> bool:
    values = (value for _, value in ast.iter_fields(node) if isinstance(value, list))
    return any(isinstance(value[0], _BLOCKS) for value in values if value)


def _span(node: Any) -> tuple[Position, int]:
    """Return a node's start, in bytes, and its last line."""
    return (node.lineno, node.col_offset), node.end_lineno
