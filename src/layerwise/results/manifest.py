"""The manifest of a run: its model, texts, settings and machine, written before the first row.

`layerwise.results.identity` compares two manifests.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from layerwise.results.checked import parse, value_of
from layerwise.results.identity import MEASURED
from layerwise.results.rows import Count


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the second: `2026-01-31T12:00:00+00:00`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def installed_versions() -> dict[str, str]:
    """Versions of what computes the rows, looked up without importing any of it.

    >>> sorted(installed_versions())[:2]
    ['layerwise', 'numpy']
    """
    from importlib import metadata

    versions = {"python": platform.python_version()}
    for name in ("layerwise", "numpy", "torch", "transformers"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


@cache
def this_hardware() -> dict[str, str]:
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "processors": str(os.cpu_count()),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The provenance of one run.

    `weight_hash` covers the weights and the configuration as loaded, `corpus_hash` the texts. `documents` and `tokens`
    count what is scored, `window` is the longest scored text in tokens, `revision` a hub commit, `layers` the path of
    the blocks in the model. `numerics` are settings that change the last bits of a number, such as the tokens of a
    batch. `command` is the argument vector, `experiment` the verb and its non-default options, `structure` the model in
    words ("Llama, 30 layers"). `created`, `versions` and `hardware` are filled in.
    """

    model: str
    revision: str | None
    weight_hash: str
    dtype: str
    device: str
    corpus: str
    corpus_hash: str
    documents: Count
    tokens: Count
    window: Count
    families: tuple[str, ...]
    tasks: tuple[str, ...]
    seed: int
    layers: str = ""
    numerics: Mapping[str, str] = field(default_factory=dict, hash=False)
    command: tuple[str, ...] = ()
    created: str = field(default_factory=utc_now)
    versions: Mapping[str, str] = field(default_factory=installed_versions, hash=False)
    hardware: Mapping[str, str] = field(default_factory=this_hardware, hash=False)
    experiment: Mapping[str, Any] = field(default_factory=dict, hash=False)
    structure: str = ""

    def __post_init__(self) -> None:
        for name in ("families", "tasks", "command"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "command", tuple(map(_text, self.command)))
        for name in ("numerics", "versions", "hardware", "experiment"):
            object.__setattr__(self, name, dict(getattr(self, name)))

    def measured(self) -> dict[str, object]:
        """The fields, by name, that say what is measured, however it is computed."""
        return {name: getattr(self, name) for name in MEASURED}

    def to_json(self) -> str:
        """Return the manifest as indented JSON.

        >>> manifest = Manifest("demo", None, "w1", "float32", "cpu", "lib", "c1", 2, 9, 8, ("f",), ("t",), 0)
        >>> Manifest.from_json(manifest.to_json()) == manifest
        True
        """
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `to_json` wrote; anything else raises `RunError`."""
        return cls.of(parse(text, "the manifest"))

    @classmethod
    def of(cls, content: object, what: str = "the manifest") -> Manifest:
        """The manifest that `to_json` made this JSON of; `what` is what a refusal calls it. Raises `RunError`."""
        return value_of(cls, content, what, whole=True)


def _text(word: str) -> str:
    return word.encode(errors="backslashreplace").decode()
