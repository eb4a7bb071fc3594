"""Provenance: which model, text and settings a measurement is of, and the folder that is named by them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerwise.measure.language.evaluation_data import EvalData
from layerwise.results import Manifest, Score
from layerwise.results.identity import model_name
from layerwise.results.manifest import this_hardware
from layerwise.results.rows import UNIFORM
from layerwise.results.run import DATABASE
from layerwise.stack import Stack, weight_hash
from layerwise.stack.checks.checkpoint_files import numbers_of
from layerwise.stack.precision import matmul_precision

_OF_TASKS = (".yaml", ".yml", ".py", ".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet", ".arrow")
"""How the names of task files end, and of the data that they read."""

UNITS = {"B": 10**9, "M": 10**6, "k": 10**3}
"""Of numbers of parameters."""

_OF_CACHE = "dataset_info.json"
"""The file that the datasets library puts into each folder of its cache."""


def provenance(
    stack: Stack,
    reading: EvalData,
    *,
    families: tuple[str, ...],
    tasks: tuple[str, ...] = (),
    seed: int,
    command: tuple[str, ...] = (),
    settings: Mapping[str, object] | None = None,
) -> Manifest:
    """The manifest of a measurement of `stack` on `reading`; `families` and `tasks` decide what a row means, `settings`
    its last bits."""
    return described(
        stack, weight_hash(stack.model), corpus=reading.name, corpus_hash=reading.digest,
        documents=reading.documents, tokens=reading.tokens, window=reading.length, families=families, tasks=tasks,
        seed=seed, command=command, settings=settings,
    )  # fmt: skip


def size_row(stack: Stack) -> Score:
    """The parameters of the model, those that are shared counted once, as a row about the run."""
    return Score("run", "parameters", float(numbers_of(stack.model)), part="model")


def uniform_row(stack: Stack) -> Score:
    """The loss of guessing every token of the vocabulary alike, the logarithm of its size, as a row about the run."""
    return Score("run", UNIFORM, math.log(int(stack.text_config.vocab_size)), part="model")


def described(stack: Stack, weights: str, *, settings: Mapping[str, object] | None = None, **more: Any) -> Manifest:
    """The manifest of whatever is made of `stack`, whose weights have the hash `weights`.

    `settings` are those that change the last bits of a number, by the names of their options; `more` are the other
    fields of the manifest.
    """
    return Manifest(
        model=stack.source.name, revision=stack.source.revision, weight_hash=weights,
        dtype=str(stack.dtype).removeprefix("torch."), device=stack.device.type, layers=stack.path,
        numerics=numerics(stack.device, stack.model, **(settings or {})), hardware=hardware(stack.device),
        structure=structure(stack), **more,
    )  # fmt: skip


def structure(stack: Stack) -> str:
    """The architecture, the layers and the parameters in words: `Llama, 30 layers, 135 M`."""
    architecture = re.sub(r"(For[A-Z]|LMHead|Model$).*", "", type(stack.model).__name__)
    numbers = numbers_of(stack.model)
    unit, scale = next(((unit, scale) for unit, scale in UNITS.items() if numbers >= scale), ("", 1))
    size = numbers / scale
    text = f"{size:.0f}" if size >= 100 or not unit else f"{size:.2g}"
    return f"{architecture}, {stack.depth} layer{'s' * (stack.depth != 1)}, {text} {unit}".rstrip()


def numerics(device: torch.device | str, model: nn.Module | None = None, **settings: object) -> dict[str, str]:
    """What, besides what is measured, decides the bits of a number: `settings`, and what torch computes by.

    The threads count on a processor alone, where a sum is divided among them.

    >>> numerics("meta", batch_tokens=100)["batch_tokens"]
    '100'
    """
    texts = {name: str(value) for name, value in settings.items()}
    if torch.device(device).type == "cpu":
        texts["threads"] = str(torch.get_num_threads())
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if isinstance(attention, str):
        texts["attention"] = attention
    texts["matmul_precision"] = matmul_precision()
    texts["deterministic"] = str(torch.are_deterministic_algorithms_enabled())
    return texts


def in_words(device: torch.device | str, dtype: str) -> str:
    """How a model is asked, as far as that decides the bits of the answer; `dtype` as it was asked for.

    >>> in_words("meta", "auto")
    'auto on meta'
    """
    kind = torch.device(device).type
    result = numerics(device)
    threads = result.pop("threads", None)
    words = [f"{'float32' if dtype == 'auto' and kind == 'cpu' else dtype} on {kind}"]
    if threads is not None:
        words.append(f"{threads} thread{'s' * (threads != '1')}")
    usual = {"matmul_precision": "highest", "deterministic": "False"}
    words += [f"{name} {value}" for name, value in result.items() if usual.get(name) != value]
    return ", ".join(words)


def hardware(device: torch.device | str) -> dict[str, str]:
    """The machine in words, with the instructions that torch's kernels use and the accelerator, where there is one."""
    texts = {**this_hardware(), "kernels": torch.backends.cpu.get_cpu_capability()}
    if torch.device(device).type == "cuda":
        texts["accelerator"] = torch.cuda.get_device_name(torch.device(device))
    return texts


def task_digest(folder: Path) -> str:
    """SHA-256, shortened, over the task files in a folder, with their data and their paths in it.

    What is hidden is left out, and so are the folders of runs and the caches of data, which may lie beside the tasks.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith((".", "__")) for part in inside.parts)
        if hidden or path.suffix not in _OF_TASKS or not path.is_file():
            continue
        if any((folder / parent / name).exists() for parent in inside.parents for name in (DATABASE, _OF_CACHE)):
            continue
        with path.open("rb") as file:
            digest.update(f"{inside.as_posix()}\n".encode(errors="surrogateescape"))
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def folder_of(manifest: Manifest, recipe: object = None, root: Path = Path("runs")) -> Path:
    """The folder of a run that was given none: named by what it measures, and of trainings by the `recipe` (plain
    values, as JSON has them) that they share, so that the same command resumes it and no other one meets it.

    How it is computed is not in the name: a command that would compute otherwise finds the run, and is refused with the
    difference.
    """
    content = {**manifest.measured(), **({} if recipe is None else {"recipe": recipe})}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model_name(manifest.model)).strip(".-") or "model"
    return root / f"{name}-{digest[:8]}"
