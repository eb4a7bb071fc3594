"""A checkpoint on disk: its settings, its tensors as byte ranges, and its small files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from layerwise.checkpoint.layer_names import UnresolvedNamesError
from layerwise.data.model_location import location_of
from layerwise.data.stored_files import ADAPTER, CONFIG, Tensors, read_config, read_settings, stored_tensors
from layerwise.plan.config_order import generation_in_order

# Files of a model other than weights: tokenizer, image processor, generation settings, code.
BESIDE = re.compile(
    r"tokenizer.*|vocab.*|merges\.txt|special_tokens_map\.json|added_tokens\.json|.*\.(spm|tiktoken|jinja|py)"
    r"|(sentencepiece|spiece|source|target)[^/]*\.model|chat_template\.json|generation_config\.json"
    r"|(video_)?preprocessor_config\.json|processor_config\.json"
)
GENERATION = "generation_config.json"
_DOWNLOADED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken", "*.spm")


@dataclass(frozen=True)
class StoredModel:
    """The checkpoint in `folder`. `name` is how the user refers to it."""

    name: str
    folder: Path
    settings: Mapping[str, Any]
    tensors: Tensors

    @classmethod
    def open(cls, name: str, revision: str | None = None) -> StoredModel:
        """Read the headers of a model, given as a folder, a hub id or a bundled name.

        Raises `CheckpointError` for malformed files, and `UnresolvedNamesError` for an unavailable hub id.
        """
        folder = Path(location_of(name))
        if not folder.is_dir():
            folder = _download(name, revision)
        if not (folder / CONFIG).is_file():
            raise UnresolvedNamesError(f"{folder} has no {CONFIG}")
        settings = read_config(folder)
        if settings.get("transformers_weights") is not None:
            raise UnresolvedNamesError(f"{CONFIG} refers to weights other than model.safetensors")
        if (folder / ADAPTER).is_file():
            raise UnresolvedNamesError(f"it has an adapter ({ADAPTER})")
        return cls(name, folder, _with_floats(settings), stored_tensors(folder))

    @cached_property
    def size(self) -> int:
        return sum(each.size for each in self.tensors.values())

    @property
    def quantized(self) -> bool:
        return self.settings.get("quantization_config") is not None

    def copy_other_files(self, folder: Path, prefix: str, order: Sequence[int], depth: int) -> None:
        for path in sorted(self.folder.iterdir()):
            if path.is_file() and BESIDE.fullmatch(path.name):
                shutil.copyfile(path, folder / path.name)
        settings = read_settings(folder / GENERATION)
        if changed := generation_in_order(settings, prefix, order, depth):
            kept = {name: value for name, value in {**settings, **changed}.items() if value is not None}
            (folder / GENERATION).write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _with_floats(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _with_floats(each) for key, each in value.items()}
    return [_with_floats(each) for each in value] if isinstance(value, list) else value


def _download(name: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=revision, allow_patterns=list(_DOWNLOADED)))
    except Exception as error:  # opening the model in memory reports the reason
        raise UnresolvedNamesError(f"{name} could not be fetched: {type(error).__name__}") from error
