"""The package's sources, read and parsed once."""

import ast
from functools import cache
from pathlib import Path

import layerwise

PACKAGE = Path(layerwise.__file__).parent


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


@cache
def files() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf8")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def trees() -> dict[Path, ast.Module]:
    return {path: tree(path) for path in files()}
