"""`visit_config` in a separate process without torch, which takes longer to import than a checkpoint to copy."""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata, util
from types import ModuleType
from typing import Any

from layerwise.checkpoint.layer_names import UnresolvedNames
from layerwise.checkpoint.stored_config import VisitConfig, visit_config

POSTPONED = ("transformers", "transformers.models")


def without_torch(
    settings: Mapping[str, Any], groups: Mapping[str, int], order: Sequence[int], path: str | None
) -> VisitConfig:
    ended = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps({"settings": settings, "groups": groups, "order": list(order), "path": path}),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"},
    )
    if ended.returncode:
        raise UnresolvedNames(ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else "no configuration")
    result = json.loads(ended.stdout)
    if "refused" in result:
        raise UnresolvedNames(result["refused"])
    return VisitConfig(**{**result, "index_coded": tuple(result["index_coded"])})


class _Postponed(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _postpone(name: str) -> None:
    spec = util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise UnresolvedNames(f"{name} is not installed")
    package = _Postponed(name)
    package.__spec__, package.__file__ = spec, spec.origin
    package.__path__ = list(spec.submodule_search_locations)
    package.__package__ = name
    sys.modules[name] = package


def _main() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # an import of it fails, as where it is not installed
    gc.disable()  # nearly all that this process does is to import: a tenth of its time would go to collections
    task = json.load(sys.stdin)
    for name in POSTPONED:
        _postpone(name)
    vars(sys.modules["transformers"])["__version__"] = metadata.version("transformers")
    try:
        result = asdict(visit_config(**task))
    except UnresolvedNames as refused:
        result = {"refused": str(refused)}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    _main()
