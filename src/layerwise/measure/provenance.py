"""Provenance: which model, text and settings a measurement is of, and the folder that is named by them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from layerwise.measure.reading import Reading
from layerwise.results import Manifest
from layerwise.stack import Stack, weight_hash


def provenance(
    stack: Stack,
    reading: Reading,
    *,
    families: tuple[str, ...],
    tasks: tuple[str, ...] = (),
    seed: int,
    command: tuple[str, ...] = (),
) -> Manifest:
    """The manifest of a measurement of `stack` on `reading`; `families` and `tasks` decide what a row means."""
    return Manifest(
        model=stack.source.name, revision=stack.source.revision, weight_hash=weight_hash(stack.model),
        dtype=str(stack.dtype).removeprefix("torch."), device=str(stack.device.type), corpus=reading.name,
        corpus_hash=reading.digest, documents=reading.documents, tokens=reading.tokens, window=reading.length,
        families=families, tasks=tasks, seed=seed, layers=stack.path, command=command,
    )  # fmt: skip


def folder_of(manifest: Manifest, root: Path = Path("runs")) -> Path:
    """The folder of a run that was given none: named by what it measures, so that the same command resumes it."""
    digest = hashlib.sha256(json.dumps(manifest.identity(), sort_keys=True, default=str).encode()).hexdigest()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(manifest.model).name).strip(".-") or "model"
    return root / f"{name}-{digest[:8]}"
