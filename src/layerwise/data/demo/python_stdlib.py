"""The standard library as text: docstrings (`prose`) and source (`code`) of each module.

Modules are assigned to splits by a hash of the name of their family, such as `email`, so modules that share text are in
the same split in every Python version. Tests, tables and bundled programs are excluded.
"""

from __future__ import annotations

import ast
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from layerwise.errors import DataError, near_matches

SPLITS = ("train", "heldout")
KINDS = ("prose", "code")

_EXCLUDED = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "encodings", "pydoc_data", "__phello__"}
    | {"site-packages", "dist-packages", "lib-dynload", "__pycache__"}
)
_SAME_FAMILY = {
    "posixpath": "ntpath",
    "genericpath": "ntpath",
    "cProfile": "profile",
    "dummy_threading": "threading",
}
_MAX_BYTES = 300_000  # larger source files are generated tables
_HELDOUT_BYTES = 26  # of the 256 values of the hash's first byte: one family in ten


@dataclass(frozen=True, slots=True)
class PythonText:
    """One text of a module: `kind` is `prose` (its docstrings) or `code` (its source)."""

    module: str
    kind: str
    text: str


def assign_split(module: str) -> str:
    """Return `train` or `heldout`, depending on the hash of the module's family.

    >>> assign_split("email.message") == assign_split("email")
    True
    """
    return "heldout" if sha256(_family(module).encode()).digest()[0] < _HELDOUT_BYTES else "train"


def _family(module: str) -> str:
    top = module.split(".")[0]
    top = _SAME_FAMILY.get(top, top)
    if top.startswith("sre_"):
        return "re"
    return top.removeprefix("_py").lstrip("_") or top


def list_modules() -> dict[str, Path]:
    """List every readable module of the standard library, sorted by name. Raises `DataError` if there is no source."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = {}
    for path in _sources(root):
        parts = path.relative_to(root).with_suffix("").parts
        if _is_included(parts) and path.stat().st_size <= _MAX_BYTES:
            paths[".".join(parts).removesuffix(".__init__")] = path
    if not paths:
        raise DataError(f"{root} has no Python source. Use a Python installation with .py files.")
    return dict(sorted(paths.items()))


def _sources(root: Path) -> Iterator[Path]:
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if _is_included(Path(folder, name).relative_to(root).parts)]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


def _is_included(parts: tuple[str, ...]) -> bool:
    return _EXCLUDED.isdisjoint(parts) and not parts[0].startswith(("_sysconfigdata", "config-"))


@cache
def read_documents(split: str, kind: str) -> tuple[PythonText, ...]:
    """Read the documents of a split (`train`, `heldout`) and kind (`prose`, `code`), sorted by module.

    Files that are empty, undecodable or unparsable are skipped. Raises `DataError` for an unknown split.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}; {near_matches(split, SPLITS)}")
    paths = [(module, path) for module, path in list_modules().items() if assign_split(module) == split]
    texts = ((module, _text(module, path, kind)) for module, path in paths)
    return tuple(PythonText(module, kind, text) for module, text in texts if text.strip())


def _text(module: str, path: Path, kind: str) -> str:
    try:
        source = path.read_text(encoding="utf-8")
        return source if kind == "code" else "\n\n".join(_docstrings(module, ast.parse(source))) + "\n"
    except (OSError, UnicodeDecodeError, SyntaxError):
        return ""


def _docstrings(name: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        documentation = ast.get_docstring(node)
        if documentation:
            yield f"{name}\n{documentation}"
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # expressions have no definitions, and most nodes are expressions
        inner = f"{name}.{child.name}" if isinstance(child, ast.ClassDef | ast.FunctionDef) else name
        yield from _docstrings(inner, child)
