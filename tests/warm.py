"""Imports made once by the process from which `apart` forks."""

import gc
import importlib
import io
import pkgutil
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import layerwise
from layerwise.cli.app import build
from threads import use_threads

# A first command imports, from torch and transformers, most of what any command imports when it runs.
_FIRST = ("sweep", "demo", "--families", "", "--plan", "0-10", "--no-similarity", "--max-length", "12", "--quiet")

use_threads()
for module in pkgutil.walk_packages(layerwise.__path__, "layerwise."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
with TemporaryDirectory() as _folder, redirect_stdout(io.StringIO()):
    Path(_folder, "text.txt").write_bytes(Path(__file__).read_bytes())
    build()([*_FIRST, "--text", f"{_folder}/text.txt", "--run", f"{_folder}/run"])
gc.collect()
gc.freeze()  # a collection in a child would copy every page that it looks at
