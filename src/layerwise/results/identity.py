"""Compare manifests: what must be equal for rows to share a table, and how a user makes it equal.

The identity is what is measured (model, text, plans, seed) and how (`numerics`). Resuming with another one is refused;
versions, hardware and the number of training processes may differ and are reported (`changes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from layerwise.errors import RunError

if TYPE_CHECKING:
    from layerwise.results.manifest import Manifest

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
"""Fields that say what is measured, by hashes instead of names; a hash comes after the fields that it depends on."""

_TEXT = "Give the text, the tokenizer, the --max-length, --tokens and --limit that it was begun with"
_WRITE: Mapping[str, str] = {
    "weight_hash": "Give the model that it was begun with",
    "dtype": "Write --dtype {}",
    "device": "Write --device {}",
    "corpus_hash": _TEXT,
    "documents": _TEXT,
    "tokens": _TEXT,
    "window": "Write --max-length {}",
    "families": "To go on, ask for the same plans or parts",
    "tasks": "To go on, ask for the same tasks",
    "seed": "Write --seed {}",
    "layers": "Write --layers {}",
    "batch_tokens": "Write --batch-tokens {}",
    "task_folder": "Give the --task-folder that it was begun with, its files unchanged",
    "train": "Write --train {}",
    "learning_rates": "Give the --learning-rate that it was begun with",
    "epochs": "Give the --epochs that it was begun with",
    "patience": "Give the --patience that it was begun with",
    "batch_size": "Give the --batch-size that it was begun with",
    "length": "Give the --max-length that it was begun with",
    "machine": "Time on the machine that it was begun on",
    "threads": "Write OMP_NUM_THREADS={} before the command",
    "set": "Give the same --set",
    "attention": "Open the model with the attention {}",
    "matmul_precision": "Call torch.set_float32_matmul_precision('{}')",
    "deterministic": "Call torch.use_deterministic_algorithms({})",
}

_CALLED: Mapping[str, str] = {
    "dtype": "number format",
    "documents": "number of documents",
    "tokens": "number of tokens",
    "window": "longest window, in tokens,",
    "families": "choice of plans or parts",
    "tasks": "choice of tasks",
    "layers": "path of the layers",
}

_OTHER_PROCESSES = (
    "trainings go on with the same plans and examples, and with losses that agree to rounding; where a model has "
    "dropout, or each process draws its own plans, other ones are drawn"
)

_LONGEST = 60

PROCESSES = "processes"
"""The numeric setting for the number of training processes, which may change when a run resumes."""

UNNAMED = frozenset({"model", "checkpoint", "hf", "weights", "output", "final", "."})
"""Names of folders that say nothing about the model in them."""

HARDWARE = ("machine", "processor", "kernels", "accelerator")
"""What of the hardware decides which kernels compute, and so the last bits of a number."""


def check_same_run(recorded: Manifest, requested: Manifest) -> None:
    """Raise `RunError` unless both manifests have one identity; the message names the first difference and the fix."""
    for name, before, now in _differences(recorded, requested):
        advice = _WRITE.get(name, "To go on, repeat the settings that it was begun with").format(before)
        raise RunError(
            f"This folder holds another run: {_difference(recorded, requested, name, before, now)}. "
            f"{advice}, or choose another folder with --run, or use --overwrite to discard its rows and start again."
        )


def _difference(recorded: Manifest, requested: Manifest, name: str, before: object, now: object) -> str:
    if name == "weight_hash":
        return f"it was made {_other('from ', recorded.model, requested.model, before, now)}"
    if name == "corpus_hash":
        return f"it was measured {_other('on ', recorded.corpus, requested.corpus, before, now)}"
    return f"its {_CALLED.get(name, name)} is {_shown(before)}, and {_shown(now)} was asked for"


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
        then, requested_value = recorded.numerics.get(name, "not set"), requested.numerics.get(name, "not set")
        if then != requested_value:
            yield name, then, requested_value


def _shown(value: object) -> str:
    return _cut(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def changes(recorded: Manifest, current: Manifest) -> tuple[str, ...]:
    versions = version_changes(recorded.versions, current.versions)
    hardware = (
        {name: each.hardware[name] for name in HARDWARE if name in each.hardware} for each in (recorded, current)
    )
    moved = version_changes(*hardware)
    processes = version_changes(*({PROCESSES: each.numerics.get(PROCESSES, "1")} for each in (recorded, current)))
    return (
        *versions,
        *(f"{change}, so rows from here on may differ in their last bits" for change in moved),
        *(f"the number of {change}: {_OTHER_PROCESSES}" for change in processes),
    )


def version_changes(recorded: Mapping[str, str], current: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence for each name whose value is not what it was when the run began.

    >>> version_changes({"torch": "2.11.0"}, {"torch": "2.13.0"})
    ('torch was 2.11.0 when this run began and is 2.13.0 now',)
    """
    sentences = []
    for name in sorted({*recorded, *current}):
        before, now = recorded.get(name, "absent"), current.get(name, "absent")
        if before != now:
            sentences.append(f"{name} was {before} when this run began and is {now} now")
    return tuple(sentences)


def model_name(location: str) -> str:
    """The last part of a path or of a hub id; of a model that a training left, its arm and its seed.

    >>> model_name("HuggingFaceTB/SmolLM2-135M"), model_name("/data/models/tiny/"), model_name("demo")
    ('SmolLM2-135M', 'tiny', 'demo')
    >>> model_name("runs/demo-vit-1a2b3c4d/layershuffle/seed-0/model")
    'layershuffle, seed 0'
    """
    *above, last = [part for part in re.split(r"[/\\]", location) if part not in ("", ".")] or [location]
    seed = re.fullmatch(r"seed-(\d+)", above[-1]) if above else None
    return f"{above[-2]}, seed {seed[1]}" if seed and len(above) > 1 else last


def model_title(location: str, structure: str) -> str:
    """What a page calls a model: its name, or its structure where the name is that of any folder.

    >>> model_title("org/SmolLM2-135M", "Llama, 30 layers, 135 M"), model_title("/tmp/model", "Llama, 30 layers, 135 M")
    ('SmolLM2-135M', 'Llama, 30 layers, 135 M')
    """
    name = model_name(location)
    return structure if structure and name.lower() in UNNAMED else name
