"""What of layerwise the API pages document, and under which name.

The command line is left out, since `layerwise --help` documents it, and so are the chapters of the reports.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType

import layerwise

LEFT_OUT = ("layerwise.cli", "layerwise.__main__", "layerwise.page.")


@cache
def documented_modules() -> dict[str, bool]:
    """The full name of every module that has a place on the API pages, and whether it is a package."""
    found = pkgutil.walk_packages(layerwise.__path__, "layerwise.")
    names = {"layerwise": True, **{module.name: module.ispkg for module in found}}
    return {name: is_package for name, is_package in names.items() if not name.startswith(LEFT_OUT)}


def exported(package: ModuleType) -> list[str]:
    """The public names of a package, in its own order."""
    return list(getattr(package, "__all__", []))


def home(package: ModuleType, name: str) -> str | None:
    """The full name under which the pages document an object of a module; nothing for constants and aliases."""
    value = getattr(package, name)
    if isinstance(value, ModuleType):
        return value.__name__ if value.__name__ in documented_modules() else None
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module}.{own}" if own and module in documented_modules() else None


def link(name: str) -> str | None:
    """What a full name in prose refers to: a module, or an object where it is defined.

    Nothing for what the pages leave out. A name of a documented module that does not exist is returned as it is, so
    that the build warns of a reference to nothing.
    """
    if name in documented_modules():
        return name
    owner, _, own = name.rpartition(".")
    if name.startswith(LEFT_OUT) or not owner:
        return None
    return home(import_module(owner), own) if owner in documented_modules() and _has(owner, own) else name


def _has(module: str, name: str) -> bool:
    return hasattr(import_module(module), name)
