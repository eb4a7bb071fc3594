"""Files of JSON lines that come with the package, and the words that their sentences are made of (`suites.toml`)."""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

TABLES: Mapping[str, Any] = tomllib.loads(files(__package__).joinpath("suites.toml").read_text(encoding="utf-8"))


def read_packaged(name: str) -> list[dict[str, Any]]:
    text = gzip.decompress(files(__package__).joinpath(name).read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]
