"""API reference, generated from public docstrings when a build starts.

`api/index.rst` lists the names of `layerwise` itself; each package has a page with its modules. Docstrings have single
backticks around names and four spaces before tables. Napoleon reads their Google sections, and `rewrite` converts the
rest to reStructuredText.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

import layerwise
from layerwise.catalogue import VERBS

NAPOLEON = Config(napoleon_use_rtype=False)
EXCLUDED = ("layerwise.__main__", "layerwise.bounded", "layerwise.catalogue", "layerwise.cli", "layerwise.page.")
VERB_MODULES = {verb.function.__module__ for verb in VERBS.values()}
"""The only modules of `layerwise.studies` that are documented."""

_NAME = re.compile(r"layerwise(\.\w+)+")
_MARKUP = re.compile(r"(\*[\w ]+\*)|([\\*|]|_(?!\w))")  # emphasis stays, other signs are escaped
_FIELD = re.compile(r":(?:param|returns?|raises|rtype|type)\b[^:]*:")
_BEFORE = (*" \n\"'([{<-/:",)
_AFTER = (*" \n\"')]}>-/\\:.,;!?",)


@cache
def documented_modules() -> dict[str, bool]:
    """Return the full name of each documented module, and whether it is a package."""
    found = pkgutil.walk_packages(layerwise.__path__, "layerwise.")
    names = {"layerwise": True, **{module.name: module.ispkg for module in found}}
    return {name: is_package for name, is_package in names.items() if not is_excluded(name)}


def is_excluded(name: str) -> bool:
    is_inside_study = re.match(r"layerwise\.studies\.\w+\.\w+", name)
    return name.startswith(EXCLUDED) or bool(is_inside_study and not name.startswith(tuple(VERB_MODULES)))


def find_target(package: ModuleType, name: str) -> str | None:
    """Return the full name under which an exported object is documented, or None for constants and aliases."""
    value = getattr(package, name)
    if isinstance(value, ModuleType):
        return value.__name__ if value.__name__ in documented_modules() else None
    module, qualified_name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module}.{qualified_name}" if qualified_name and module in documented_modules() else None


def resolve(name: str) -> str | None:
    """Return the target of a full name in prose, or None if it is excluded.

    An unknown name of a documented module is returned unchanged, so that the build warns about it.
    """
    if name in documented_modules():
        return name
    owner, _, attribute = name.rpartition(".")
    if is_excluded(name) or not owner:
        return None
    if owner in documented_modules() and hasattr(import_module(owner), attribute):
        return find_target(import_module(owner), attribute)
    return name


def write_pages(folder: Path) -> None:
    """Write one page per package, and remove pages of packages that no longer exist."""
    folder.mkdir(exist_ok=True)
    packages = [name for name, is_package in documented_modules().items() if is_package]
    pages = {name if name != "layerwise" else "index": render_page(name) for name in packages}
    for stale in folder.glob("*.rst"):
        if stale.stem not in pages:
            stale.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def render_page(package: str) -> str:
    """Return the page of a package: its description, exported names, packages and modules."""
    inside = [name for name in documented_modules() if name.rpartition(".")[0] == package]
    packages = [name for name in inside if documented_modules()[name]]
    modules = [name for name in inside if not documented_modules()[name]]
    module = import_module(package)
    exported = list(getattr(module, "__all__", []))
    targets = {name: target for name in exported if (target := find_target(module, name))}
    defined_here = [name for name, target in targets.items() if target == f"{package}.{name}"]
    constants = ", ".join(f"``{name}``" for name in exported if name not in targets)
    return "\n".join(
        [
            *_render_title("API reference" if package == "layerwise" else package, "="),
            f".. automodule:: {package}",
            *([f"   :members: {', '.join(defined_here)}"] if defined_here else []),
            "",
            *(_render_title("Exported names", "-") if exported else []),
            *(line for name, target in targets.items() for line in _render_entry(target, getattr(module, name))),
            "",
            *([f"Types and constants: {constants}.", ""] if constants else []),
            *([*_render_title("Packages", "-"), ".. toctree::", "   :maxdepth: 1", ""] if packages else []),
            *(f"   {name}" for name in packages),
            "",
            *(
                line
                for name in modules
                for line in (*_render_title(name, "-"), f".. automodule:: {name}", "   :members:", "")
            ),
        ]
    )


def _render_title(text: str, underline: str) -> list[str]:
    return [text, underline * len(text), ""]


def _render_entry(target: str, value: object) -> list[str]:
    lines = (inspect.getdoc(value) or "").splitlines()
    is_signature = bool(lines) and lines[0].startswith(f"{target.rpartition('.')[2]}(")
    summary = " ".join(lines[2:3] if is_signature else lines[:1])
    return [f":py:obj:`~{target}`", f"   {rewrite([summary])[0]}"]


def rewrite(lines: list[str]) -> list[str]:
    r"""Convert the blocks of a docstring to reStructuredText.

    >>> rewrite(["Sum `x` * 2.", "", "    a | b", "", ">>> 1", "1"])
    ['Sum ``x`` \\* 2.', '', '.. code-block:: text', '', '    a | b', '', '>>> 1', '1', '']
    """
    converted: list[str] = []
    is_literal = False
    for block in _split_blocks(lines):
        if block[0].startswith("    "):
            language = "python" if any("import " in line for line in block) else "text"
            converted += block if is_literal else [f".. code-block:: {language}", "", *block]
            is_literal = True
        else:
            is_prose = not block[0].startswith((">>> ", ".. "))
            converted += _convert_prose(block) if is_prose else block
            is_literal = False
        converted.append("")
    return converted


def _split_blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield runs of nonempty lines; prose ends where indented lines start, except in a field list."""
    for is_filled, run in groupby(lines, key=lambda line: bool(line.strip())):
        block = list(run)
        if not is_filled:
            continue
        if block[0].startswith((">>> ", ".. ")) or _FIELD.match(block[0]):
            yield block
        else:
            yield from (list(part) for _, part in groupby(block, key=lambda line: line.startswith("    ")))


def _convert_prose(block: list[str]) -> list[str]:
    r"""Convert code spans, which may cross lines; an escaped space separates a span from an adjacent word.

    >>> _convert_prose(["`Member`s of 1..`5` (`x`)"])
    ['``Member``\\ s of 1..\\ ``5`` (``x``)']
    """
    parts = re.split(r"`([^`]+)`", "\n".join(block))
    text = _escape(parts[0])
    for code, prose in zip(parts[1::2], parts[2::2], strict=True):
        before = "" if not text or text.endswith(_BEFORE) else "\\ "
        after = "" if not prose or prose.startswith(_AFTER) else "\\ "
        target = resolve(code) if _NAME.fullmatch(code) else None
        span = f":py:obj:`{code} <{target}>`" if target else f"``{' '.join(code.split())}``"
        text += f"{before}{span}{after}{_escape(prose)}"
    return text.split("\n")


def _escape(text: str) -> str:
    return _MARKUP.sub(lambda sign: sign[1] or f"\\{sign[2]}", text)


class _WithoutMetadata(ast.NodeTransformer):
    """Replace `Annotated[X, ...]` and `Rare[X]` with X."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.value).rpartition(".")[2]
        inner = node.slice.elts[0] if name == "Annotated" and isinstance(node.slice, ast.Tuple) else node.slice
        return inner if name in ("Annotated", "Rare") else node


def _process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: str | None, result: str | None
) -> tuple[str, str] | None:
    """Show the annotations of a verb as they are written, without the metadata of its options."""
    if what != "function" or "Annotated[" not in (arguments or ""):
        return None
    parameters: list[str] = []
    for parameter in inspect.signature(obj).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        annotation = _WithoutMetadata().visit(ast.parse(str(parameter.annotation), mode="eval"))
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        parameters.append(f"{parameter.name}: {ast.unparse(annotation)}{default}")
    return f"({', '.join(parameters)})", result or ""


def _process_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what not in ("data", "attribute"):  # whose first word napoleon would take for a type
        lines[:] = GoogleDocstring(lines, NAPOLEON, app, what, name, obj, options).lines()
    lines[:] = rewrite(lines)


def _skip_named_tuple_field(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def _unlink_builtins(app: Sphinx, tree: nodes.document) -> None:
    """Remove links from builtin types in annotations, which Sphinx would resolve to fields of that name."""
    for reference in list(tree.findall(pending_xref)):
        if reference.get("reftype") == "class" and reference.get("reftarget") in vars(builtins):
            reference.replace_self(nodes.Text(reference["reftarget"]))


def _write(app: Sphinx) -> None:
    write_pages(Path(app.srcdir) / "api")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", _write)
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-process-docstring", _process_docstring)
    app.connect("autodoc-skip-member", _skip_named_tuple_field)
    app.connect("doctree-read", _unlink_builtins)
    return {"parallel_read_safe": True}
