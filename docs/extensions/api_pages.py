"""The API pages, written from the package when a build begins: no page names a module by hand.

`api/index.rst` lists the names of `layerwise` itself. One page a package lists its modules, with everything public in
them.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

from sphinx.application import Sphinx

from docstrings import rewritten
from public_names import documented_modules, exported, home


def write_pages(folder: Path) -> None:
    """One page a package, in a folder that holds nothing else."""
    folder.mkdir(exist_ok=True)
    packages = [name for name, is_package in documented_modules().items() if is_package]
    pages = {name if name != "layerwise" else "index": page(name) for name in packages}
    for stale in folder.glob("*.rst"):
        if stale.stem not in pages:
            stale.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def page(package: str) -> str:
    """The page of a package: what it is, the names that it exports, its packages, and its modules in full."""
    inside = [name for name in documented_modules() if name.rpartition(".")[0] == package]
    packages = [name for name in inside if documented_modules()[name]]
    modules = [name for name in inside if not documented_modules()[name]]
    module = import_module(package)
    return "\n".join(
        [
            *_title("API" if package == "layerwise" else package, "="),
            f".. automodule:: {package}",
            *_own_members(module),
            "",
            *_exports(module),
            *([*_title("Packages", "-"), ".. toctree::", "   :maxdepth: 1", ""] if packages else []),
            *(f"   {name}" for name in packages),
            "",
            *(line for name in modules for line in _module(name)),
        ]
    )


def _title(text: str, underline: str) -> list[str]:
    return [text, underline * len(text), ""]


def _module(name: str) -> list[str]:
    return [*_title(name, "-"), f".. automodule:: {name}", "   :members:", ""]


def _own_members(package: ModuleType) -> list[str]:
    """The option for what a package defines in its own file, beside what it exports from its modules."""
    own = [name for name in exported(package) if home(package, name) == f"{package.__name__}.{name}"]
    return [f"   :members: {', '.join(own)}"] if own else []


def _exports(package: ModuleType) -> list[str]:
    """The exported names, each linked to the page where it is defined, with its first line; constants at the end."""
    linked = {name: target for name in exported(package) if (target := home(package, name))}
    rest = [name for name in exported(package) if name not in linked]
    lines = [line for name, target in linked.items() for line in _entry(target, getattr(package, name))]
    constants = [f"Types and constants: {', '.join(f'``{name}``' for name in rest)}.", ""] if rest else []
    return [*_title("Exported names", "-"), *lines, "", *constants] if linked or rest else []


def _entry(target: str, value: object) -> list[str]:
    first = (inspect.getdoc(value) or "").partition("\n")[0]
    return [f":py:obj:`~{target}`", f"   {rewritten([first])[0]}"]


def _write(app: Sphinx) -> None:
    write_pages(Path(app.srcdir) / "api")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True}
