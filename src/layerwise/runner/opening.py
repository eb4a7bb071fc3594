"""Open the model and the text of a verb, and describe them in the manifest."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import torch
from torch import nn
from transformers.utils import logging

import layerwise.models  # noqa: F401  (registers its architectures)
from layerwise.data.demo.corpus import demo_corpus
from layerwise.data.model_location import location_of
from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import DataError, ModelError, TrainError
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.results import Manifest, Score
from layerwise.results.manifest import model_name, this_hardware
from layerwise.results.rows import UNIFORM
from layerwise.results.run import DATABASE
from layerwise.runner.arguments import ModelLike, TextLike
from layerwise.runner.reporter import Reporter, Silent, report_waiting
from layerwise.search.rungs import share_no_document
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.checks.checkpoint_files import numbers_of
from layerwise.stack.precision import matmul_precision
from layerwise.stack.quantization import refuse_quantized
from layerwise.stack.streaming.resident import refuse_on_disk
from layerwise.train.new_head import with_new_head
from layerwise.train.training import Base


def quiet_transformers() -> None:
    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def open_stack(
    model: ModelLike,
    reporter: Reporter,
    *,
    device: str = "auto",
    dtype: str = "auto",
    tokenizer: str | None = None,
    layers: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    resident_layers: int | None = None,
    device_map: str | None = None,
) -> Stack:
    """Load a model by name, wrap a torch module in a stack, or return a stack unchanged."""
    if isinstance(model, Stack):
        return model
    if isinstance(model, nn.Module):
        return load(model, tokenizer=_tokenizer_of(model, tokenizer))
    if not isinstance(model, str | Path):
        raise ModelError(
            f"model must be a name, a folder, a torch module or a layerwise.Stack, got {type(model).__name__}."
        )
    quiet_transformers()
    with report_waiting(reporter, f"loading {model}"):
        return load(
            str(model),
            layers=layers,
            tokenizer=load_tokenizer(tokenizer, trust_remote_code=trust_remote_code) if tokenizer else None,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            resident_layers=resident_layers,
            device_map=device_map,
        )


def _tokenizer_of(module: nn.Module, tokenizer: str | None) -> Any:
    source = tokenizer or getattr(getattr(module, "config", None), "_name_or_path", None)
    if not source:
        return None
    try:
        return load_tokenizer(str(source))
    except DataError:
        if tokenizer:
            raise
        return None


def open_corpus(text: TextLike, model: ModelLike) -> Corpus:
    """Read a corpus from a path, make one from strings, or return a corpus unchanged.

    If `text` is None and the model is `demo`, return the text that comes with it.
    """
    if isinstance(text, Corpus):
        return text
    if isinstance(text, str | Path):
        return read_corpus(Path(text))
    if isinstance(text, Sequence) and all(isinstance(each, str) for each in text):
        return Corpus.of(text)
    if text is not None:
        raise DataError(f"text must be a file, a folder, a Corpus or a list of strings, got {type(text).__name__}.")
    if model == "demo":
        return demo_corpus()
    raise DataError(
        "--text is required: pass a file or a folder (only demo has its own text). To evaluate an image model, run "
        "`layerwise robustness MODEL --images FOLDER`."
    )


def describe_parts(parts: Mapping[str, EvalData]) -> str:
    unit = "documents" if share_no_document(parts.values()) else "windows"
    counts = ", ".join(f"{name} {part.tokens:,}" for name, part in parts.items())
    return f"text parts (disjoint {unit}) in scored tokens: {counts}"


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The initial model of training runs.

    `location` is the name or path from which transformers can load it, or None if it was passed as an object. `again`
    returns another copy.
    """

    stack: Stack
    location: str | None
    again: Callable[[], Stack]
    device: str
    revision: str | None

    def base(self, classes: tuple[str, ...] | None = None) -> Base:
        """Return the base for a training run. If `classes` are given, the model gets a new head to predict them."""
        weights = weight_hash(self.stack.model)
        if classes is None:
            return Base(self.again, weights, self.location)
        if self.location is None:
            raise TrainError("A new head requires a model that can be loaded again. Pass its name or directory.")
        with_head = partial(with_new_head, self.location, classes, device=self.device, revision=self.revision)
        return Base(with_head, weights, self.location)


def open_base(
    model: ModelLike,
    *,
    device: str = "auto",
    tokenizer: str | None = None,
    layers: str | None = None,
    revision: str | None = None,
) -> BaseModel:
    """Load the initial model of training in float32, or copy a model that is already loaded."""
    if not isinstance(model, str | Path):
        stack = open_stack(model, Silent(), tokenizer=tokenizer)
        refuse_quantized(stack.model, "train")
        refuse_on_disk(stack.model, "train")
        return BaseModel(stack, None, partial(_copy, stack), stack.device.type, None)
    again = partial(
        open_stack,
        str(model),
        Silent(),
        device=device,
        dtype="float32",
        tokenizer=tokenizer,
        layers=layers,
        revision=revision,
    )
    opened = again()
    refuse_quantized(opened.model, "train")
    return BaseModel(opened, location_of(str(model)), again, device, revision)


def open_given_text(text: TextLike) -> tuple[Path | None, Corpus | None]:
    if text is None or isinstance(text, str | Path):
        return None if text is None else Path(text), None
    return None, open_corpus(text, "")


def _copy(stack: Stack) -> Stack:
    copied = copy.deepcopy(stack)
    copied.model.float()
    return copied


_OF_TASKS = (".yaml", ".yml", ".py", ".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet", ".arrow")

UNITS = {"B": 10**9, "M": 10**6, "k": 10**3}

_OF_CACHE = "dataset_info.json"


def make_text_manifest(
    stack: Stack,
    reading: EvalData,
    *,
    families: tuple[str, ...],
    tasks: tuple[str, ...] = (),
    seed: int,
    settings: Mapping[str, object] | None = None,
) -> Manifest:
    return make_manifest(
        stack,
        weight_hash(stack.model),
        corpus=reading.name,
        corpus_hash=reading.digest,
        documents=reading.documents,
        tokens=reading.tokens,
        window=reading.length,
        families=families,
        tasks=tasks,
        seed=seed,
        settings=settings,
    )


def make_size_row(stack: Stack) -> Score:
    return Score("run", "parameters", float(numbers_of(stack.model)), section="model")


def make_uniform_row(stack: Stack) -> Score:
    return Score("run", UNIFORM, math.log(int(stack.text_config.vocab_size)), section="model")


def make_manifest(stack: Stack, weights: str, *, settings: Mapping[str, object] | None = None, **more: Any) -> Manifest:
    """Make the manifest of a run on `stack`.

    `settings` can change the last bits of results, and become part of `numerics`. `more` are other manifest fields.
    """
    return Manifest(
        model=stack.source.name,
        revision=stack.source.revision,
        weight_hash=weights,
        dtype=str(stack.dtype).removeprefix("torch."),
        device=stack.device.type,
        layers=stack.path,
        numerics=read_numerics(stack.device, stack.model, **(settings or {})),
        hardware=read_hardware(stack.device),
        structure=describe_structure(stack),
        **more,
    )


def describe_structure(stack: Stack) -> str:
    """Describe the architecture, such as `Llama, 30 layers, 135 M`."""
    architecture = re.sub(r"(For[A-Z]|LMHead|Model$).*", "", type(stack.model).__name__)
    numbers = numbers_of(stack.model)
    unit, scale = next(((unit, scale) for unit, scale in UNITS.items() if numbers >= scale), ("", 1))
    size = numbers / scale
    text = f"{size:.0f}" if size >= 100 or not unit else f"{size:.2g}"
    return f"{architecture}, {stack.depth} layer{'s' * (stack.depth != 1)}, {text} {unit}".rstrip()


def read_numerics(device: torch.device | str, model: nn.Module | None = None, **settings: object) -> dict[str, str]:
    """Return all settings that can change the last bits of results: `settings`, and those of torch.

    >>> read_numerics("meta", batch_tokens=100)["batch_tokens"]
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


def describe_numerics(device: torch.device | str, dtype: str) -> str:
    """Describe the dtype, device and number of threads of an evaluation.

    >>> describe_numerics("meta", "auto")
    'auto on meta'
    """
    kind = torch.device(device).type
    result = read_numerics(device)
    threads = result.pop("threads", None)
    words = [f"{'float32' if dtype == 'auto' and kind == 'cpu' else dtype} on {kind}"]
    if threads is not None:
        words.append(f"{threads} thread{'s' * (threads != '1')}")
    usual = {"matmul_precision": "highest", "deterministic": "False"}
    words += [f"{name} {value}" for name, value in result.items() if usual.get(name) != value]
    return ", ".join(words)


def read_hardware(device: torch.device | str) -> dict[str, str]:
    texts = {**this_hardware(), "kernels": torch.backends.cpu.get_cpu_capability()}
    if torch.device(device).type == "cuda":
        texts["accelerator"] = torch.cuda.get_device_name(torch.device(device))
    return texts


def hash_tasks(folder: Path) -> str:
    """Return a short SHA-256 hash of the task files in a folder. Hidden files, runs and caches are ignored."""
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


def default_folder(manifest: Manifest, recipe: object = None) -> Path:
    """Return the default directory of a run. Its name has a hash of what is measured and of the training `recipe`.

    The hash does not cover `numerics`. A run with other numerics thus has the same directory, and is refused there.
    """
    content = {**manifest.measured(), **({} if recipe is None else {"recipe": recipe})}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model_name(manifest.model)).strip(".-") or "model"
    return Path("runs") / f"{name}-{digest[:8]}"
