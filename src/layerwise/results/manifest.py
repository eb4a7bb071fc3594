"""The manifest of a run (model, text, settings, machine), and the comparison of two manifests.

The identity of a run is what it measures (model, text, plans, seed) and its numerical settings (`numerics`). A run
cannot be resumed with a different identity. If versions, hardware or the number of training processes differ, it is
resumed, and the report says so.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from layerwise.errors import RunError
from layerwise.results.checked import parse_json_text, to_dataclass
from layerwise.results.rows import Count

MEASURED = (
    "dtype",
    "device",
    "weight_hash",
    "window",
    "corpus_hash",
    "documents",
    "tokens",
    "families",
    "tasks",
    "seed",
    "layers",
)
"""Fields of a run's identity. A hash comes after the fields that it depends on, so that errors name those first."""

_TEXT = "Pass the original text, tokenizer, --max-length, --tokens and --limit"
_WRITE: Mapping[str, str] = {
    "weight_hash": "Pass the original model",
    "dtype": "Pass --dtype {}",
    "device": "Pass --device {}",
    "corpus_hash": _TEXT,
    "documents": _TEXT,
    "tokens": _TEXT,
    "window": "Pass --max-length {}",
    "families": "To resume it, pass the same plans or parts",
    "tasks": "To resume it, pass the same tasks",
    "seed": "Pass --seed {}",
    "layers": "Pass --layers {}",
    "batch_tokens": "Pass --batch-tokens {}",
    "task_folder": "Pass the original --task-folder with unchanged files",
    "train": "Pass --train {}",
    "learning_rates": "Pass the original --learning-rate",
    "epochs": "Pass the original --epochs",
    "patience": "Pass the original --patience",
    "batch_size": "Pass the original --batch-size",
    "length": "Pass the original --max-length",
    "machine": "Resume it on the original machine",
    "threads": "Set OMP_NUM_THREADS={}",
    "set": "Pass the same --set",
    "attention": "Load the model with the attention implementation {}",
    "matmul_precision": "Call torch.set_float32_matmul_precision('{}')",
    "deterministic": "Call torch.use_deterministic_algorithms({})",
}

_CALLED: Mapping[str, str] = {
    "dtype": "dtype",
    "documents": "number of documents",
    "tokens": "number of tokens",
    "window": "maximum window length",
    "families": "choice of plans or parts",
    "tasks": "choice of tasks",
    "layers": "path of the layers",
}

_OTHER_PROCESSES = (
    "training resumes with the same plans and examples, and losses agree up to rounding, unless the model has dropout "
    "or each process draws its own plans"
)

_LONGEST = 60

PROCESSES = "processes"
"""Setting for the number of training processes, which may change when a run resumes."""

UNNAMED = frozenset({"model", "checkpoint", "hf", "weights", "output", "final", "."})
"""Folder names that say nothing about the model."""

HARDWARE = ("machine", "processor", "kernels", "accelerator")
"""Properties of the hardware on which the last bits of a number depend."""


def check_same_run(recorded: Manifest, requested: Manifest) -> None:
    """Raise `RunError` if two manifests differ in what they measure or in `numerics`, so that the runs are different.

    The message has the first difference and the fix.
    """
    for name, before, now in _differences(recorded, requested):
        advice = _WRITE.get(name, "To resume it, pass the original settings").format(before)
        raise RunError(
            f"This directory contains another run: {_difference(recorded, requested, name, before, now)}. "
            f"{advice}, choose another directory with --run, or pass --overwrite to discard the run."
        )


def _difference(recorded: Manifest, requested: Manifest, name: str, before: object, now: object) -> str:
    if name == "weight_hash":
        return f"it uses {_other('', recorded.model, requested.model, before, now)}"
    if name == "corpus_hash":
        return f"it was measured {_other('on ', recorded.corpus, requested.corpus, before, now)}"
    return f"its {_CALLED.get(name, name)} is {_shown(before)}, not {_shown(now)}"


def _other(preposition: str, then: str, now: str, hash_then: object, hash_now: object) -> str:
    if model_name(then) != model_name(now):
        then, now = model_name(then), model_name(now)
    if then != now:
        return f"{preposition}{_cut(then)}, not {preposition}{_cut(now)}"
    return f"{preposition}another {_cut(then)} than this one (hash {str(hash_then)[:8]}, now {str(hash_now)[:8]})"


def _differences(recorded: Manifest, requested: Manifest) -> Iterator[tuple[str, object, object]]:
    for name in MEASURED:
        before, now = getattr(recorded, name), getattr(requested, name)
        if before != now:
            yield name, before, now
    for name in dict.fromkeys((*recorded.numerics, *requested.numerics)):
        if name == PROCESSES:
            continue
        then, requested_value = recorded.numerics.get(name, "unset"), requested.numerics.get(name, "unset")
        if then != requested_value:
            yield name, then, requested_value


def _shown(value: object) -> str:
    return _cut(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def list_changes(recorded: Manifest, current: Manifest) -> tuple[str, ...]:
    versions = list_version_changes(recorded.versions, current.versions)
    hardware = (
        {name: each.hardware[name] for name in HARDWARE if name in each.hardware} for each in (recorded, current)
    )
    moved = list_version_changes(*hardware)
    processes = list_version_changes(*({PROCESSES: each.numerics.get(PROCESSES, "1")} for each in (recorded, current)))
    return (
        *versions,
        *(f"{change}, so further rows may differ in their last bits" for change in moved),
        *(f"the number of {change}: {_OTHER_PROCESSES}" for change in processes),
    )


def list_version_changes(recorded: Mapping[str, str], current: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each version that changed since the run began.

    >>> list_version_changes({"torch": "2.11.0"}, {"torch": "2.13.0"})
    ('torch was 2.11.0 when this run began and is now 2.13.0',)
    """
    sentences = []
    for name in sorted({*recorded, *current}):
        before, now = recorded.get(name, "absent"), current.get(name, "absent")
        if before != now:
            sentences.append(f"{name} was {before} when this run began and is now {now}")
    return tuple(sentences)


def model_name(location: str) -> str:
    """Return a short name for a model: the last part of its path or hub id, or the variant and seed of a trained model.

    >>> model_name("HuggingFaceTB/SmolLM2-135M"), model_name("/data/models/tiny/"), model_name("demo")
    ('SmolLM2-135M', 'tiny', 'demo')
    >>> model_name("runs/demo-vit-1a2b3c4d/layershuffle/seed-0/model")
    'layershuffle, seed 0'
    """
    *above, last = [part for part in re.split(r"[/\\]", location) if part not in ("", ".")] or [location]
    seed = re.fullmatch(r"seed-(\d+)", above[-1]) if above else None
    return f"{above[-2]}, seed {seed[1]}" if seed and len(above) > 1 else last


def model_title(location: str, structure: str) -> str:
    """Return the name of a model, or its structure if the name is only that of a generic folder.

    >>> model_title("org/SmolLM2-135M", "Llama, 30 layers, 135 M"), model_title("/tmp/model", "Llama, 30 layers, 135 M")
    ('SmolLM2-135M', 'Llama, 30 layers, 135 M')
    """
    name = model_name(location)
    return structure if structure and name.lower() in UNNAMED else name


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that affect results, without importing them.

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

    `weight_hash` is a hash of the loaded weights and configuration, and `corpus_hash` a hash of the texts. `documents`
    and `tokens` are the numbers of scored documents and tokens, and `window` is the maximum number of tokens that are
    scored together. `revision` is a commit on the hub. `layers` is the path of the layers in the model. `numerics` are
    settings that change the last bits of results, such as the number of tokens in a batch. `command` is the argument
    vector, and `experiment` has the verb and the options that differ from their defaults. `structure` describes the
    model ("Llama, 30 layers"). `created`, `versions` and `hardware` are filled in automatically.
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
        """Return what the run measures: the fields in `MEASURED`."""
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
        """Read a manifest that `to_json` wrote. Raise `RunError` for any other text."""
        return cls.of(parse_json_text(text, "the manifest"))

    @classmethod
    def of(cls, content: object, what: str = "the manifest") -> Manifest:
        """Convert parsed JSON to a manifest. Error messages call it `what`."""
        return to_dataclass(cls, content, what, whole=True)


def _text(word: str) -> str:
    return word.encode(errors="backslashreplace").decode()
