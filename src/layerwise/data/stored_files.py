"""Read the configuration of a stored model and the byte ranges of its tensors, without reading any tensor.

Files are untrusted: the size of JSON is limited, and weights must be safetensors files in the model's directory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.bounded import UnreadableError, check_file, named, read_json, shortened, shown
from layerwise.errors import CheckpointError

ADAPTER = "adapter_config.json"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"

MAX_HEADER_BYTES = 100_000_000
"""Maximum header size, as in safetensors."""

DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits per number of each safetensors dtype, in the order of safetensors."""

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in the bytes from `begin` up to `end` of a file, with its safetensors dtype and shape."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


Tensors = Mapping[str, StoredTensor]


def read_config(folder: Path) -> dict[str, Any]:
    if not (folder / CONFIG).is_file():
        contents = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        raise CheckpointError(
            f"{folder} has no {CONFIG} (it contains {contents}). Pass a Hugging Face model directory."
        )
    settings = read_settings(folder / CONFIG)
    names = settings.get("architectures")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise _wrong(folder, "architectures", names, 'a list of names, such as ["LlamaForCausalLM"]')
    if not isinstance(settings.get("model_type", ""), str):
        raise _wrong(folder, "model_type", settings["model_type"], "a name such as llama")
    if not isinstance(settings.get("quantization_config") or {}, dict):
        raise _wrong(folder, "quantization_config", settings["quantization_config"], "an object")
    return settings


def read_settings(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file, or {} if the file is missing. Raises `CheckpointError` if the file is invalid."""
    if not file.exists():
        return {}
    try:
        content = read_json(file)
    except UnreadableError as fault:
        raise CheckpointError(f"{file} {fault}. Restore the file, or save the model again.") from fault
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{file} must be a JSON object, got a {type(content).__name__}. Restore it, or save the model again."
        )
    return content


def _wrong(folder: Path, key: str, value: object, constraint: str) -> CheckpointError:
    return CheckpointError(f"{folder / CONFIG}: {key} must be {constraint}, got {shown(value)}.")


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    return {name: each for file in list_weight_files(folder, {}) for name, each in read_header(file).items()}


def list_weight_files(folder: Path, settings: Mapping[str, Any]) -> list[Path]:
    named = settings.get("transformers_weights")
    if named is not None:
        _check_name(folder / CONFIG, "transformers_weights", named)
    if named is None and not (folder / WEIGHTS).exists() and not (folder / WEIGHTS).is_symlink():
        named = INDEX if (folder / INDEX).exists() else None
        if named is None:
            raise _no_weights(folder)
    first = folder / (named or WEIGHTS)
    if not first.name.endswith(".index.json"):
        return [first]
    index = read_settings(first)
    files = index.get("weight_map")
    if not isinstance(files, dict) or not files or not isinstance(index.get("metadata"), dict):
        raise CheckpointError(
            f'{first} must be {{"metadata": {{}}, "weight_map": {{tensor: file}}}}, got the weight_map {shown(files)}. '
            "Save the model again."
        )
    for name, file in files.items():
        _check_name(first, name, file)
    headers = {file: read_header(folder / file) for file in sorted(set(files.values()))}
    for name, file in files.items():
        if name not in headers[file]:
            raise CheckpointError(
                f"{first} maps {shortened(name)} to {shortened(file)}, which does not contain it. Save the model again."
            )
    return [folder / file for file in headers]


def _check_name(source: Path, tensor: str, file: object) -> None:
    is_plain = isinstance(file, str) and "/" not in file and "\\" not in file
    if not is_plain or not str(file).endswith((".safetensors", ".safetensors.index.json")):
        raise CheckpointError(
            f"{source}: the file of {shown(tensor)} must be a safetensors file in the same directory, got "
            f"{shown(file)}."
        )


def _no_weights(folder: Path) -> CheckpointError:
    pickled = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickled:
        return CheckpointError(
            f"{folder} has only pickled weights ({', '.join(pickled[:3])}), which can run code. Convert them to "
            "safetensors with model.save_pretrained."
        )
    return CheckpointError(f"{folder} has no {WEIGHTS} or {INDEX}. Save the model with model.save_pretrained.")


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Read the header of a safetensors file. Raises `CheckpointError` if the file is damaged."""
    try:
        check_file(file)
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
                raise ValueError(f"its header would have {length} bytes")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        tensors = {name: _stored(entry, file, 8 + length) for name, entry in header.items()}
        if any(not 8 + length <= each.begin <= each.end <= size for each in tensors.values()):
            raise ValueError("its tensors exceed the file")
        ranges = sorted((each.begin, each.end) for each in tensors.values())
        if [begin for begin, _ in ranges] + [size] != [8 + length, *(end for _, end in ranges)]:
            raise ValueError("its tensors are not contiguous")
    except UnreadableError as fault:
        raise CheckpointError(f"{named(file)} {fault}. Download or save it again.") from fault
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{named(file)} is not a complete safetensors file ({shortened(str(error))}). Download or save it again."
        ) from error
    return tensors


def _stored(entry: Any, file: Path, offset: int) -> StoredTensor:
    begin, end = map(int, entry["data_offsets"])
    dtype, shape = str(entry["dtype"]), tuple(map(int, entry["shape"]))
    if min(shape, default=0) < 0 or 8 * (end - begin) != math.prod(shape) * DTYPE_BITS[dtype]:
        raise ValueError(f"a tensor of shape {shown(shape)} and dtype {shown(dtype)} has {end - begin} bytes")
    return StoredTensor(dtype, shape, file, begin + offset, end + offset)
