"""The files of a checkpoint, looked at before anything is built from them.

A configuration of a hundred bytes can ask for a thousand million layers, an index can name any file of the machine, and
a header can say anything of what follows it. So the JSON is read within bounds, weights are safetensors inside of the
folder and nothing else, and the model that the configuration describes is drawn up without weights and compared in size
with the tensors that were saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers.initialization import no_init_weights

from layerwise.bounded import Unreadable, check_file, named, read_json, shortened, shown
from layerwise.data.auto_classes import from_pretrained
from layerwise.errors import CheckpointError, ModelError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_REASON = 200  # characters of what transformers says of a configuration
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")

MOST_PARTS = 1_000
"""Layers or experts that a configuration may ask for without as many saved tensors."""

SLACK = 2**22
"""Numbers that a model may have beyond twice those that were saved: a head that is missing is said by its name."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """What the header of a file says of a tensor: its type as safetensors spells it (`BF16`), and its shape."""

    dtype: str
    shape: tuple[int, ...]


Saved = Mapping[str, SavedTensor]
"""The tensors of a checkpoint by name."""


def check_folder(folder: Path) -> Saved:
    """The tensors that transformers would load from `folder`, by their headers.

    Raises `CheckpointError` for files that are missing, cut short, malformed, pickled or outside of the folder, and for
    a configuration that asks for more layers than the tensors can be of.
    """
    settings = read_config(folder)
    _settings(folder / "generation_config.json", {})
    saved = {name: tensor for file in _weight_files(folder, settings) for name, tensor in _header(file).items()}
    check_counts(folder, settings, len(saved))
    return saved


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration in a folder, as the values in its file. Raises `CheckpointError`."""
    if not (folder / CONFIG).is_file():
        contents = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        raise CheckpointError(f"{folder} has no {CONFIG} (it holds {contents}); give a Hugging Face model folder")
    settings = _settings(folder / CONFIG, {})
    named = settings.get("architectures")
    if named is not None and not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
        raise _wrong(folder, "architectures", named, 'a list of names, such as ["LlamaForCausalLM"]')
    if not isinstance(settings.get("model_type", ""), str):
        raise _wrong(folder, "model_type", settings["model_type"], "a name such as llama")
    if not isinstance(settings.get("quantization_config") or {}, dict):
        raise _wrong(folder, "quantization_config", settings["quantization_config"], "an object that says how the "
                     "weights are quantised, or left out")  # fmt: skip
    return settings


def open_config(location: str, revision: str | None = None) -> Any:
    """transformers' configuration in a folder or of a hub id. Raises `ModelError` where it cannot be read.

    The file in a folder is looked at first: its class may build whatever the file asks for.
    """
    folder = Path(location).expanduser()
    if folder.is_dir():
        check_counts(folder, read_config(folder))
    try:
        return from_pretrained("AutoConfig", str(folder), revision=revision)
    except ModelError:
        raise
    except Exception as error:  # transformers raises many kinds for files, network and configurations
        reason = shortened(" ".join(str(error).split()), _REASON) or type(error).__name__
        raise CheckpointError(
            f"the configuration of {named(location)} cannot be read ({reason}); give a folder with a {CONFIG} that "
            "transformers reads, or a hub id that this machine can reach"
        ) from error


def _settings(file: Path, absent: dict[str, Any]) -> dict[str, Any]:
    """The object in a JSON file, or `absent`."""
    if not file.exists():
        return absent
    try:
        content = read_json(file)
    except Unreadable as fault:
        raise CheckpointError(f"{file} {fault}; restore the file, or save the model again") from fault
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{file} is a {type(content).__name__}, not an object; restore it, or save the model again"
        )
    return content


def _wrong(folder: Path, key: str, value: object, wanted: str) -> CheckpointError:
    return CheckpointError(f"{folder / CONFIG}: {key} is {shown(value)}; it should be {wanted}")


# -- counts and sizes ---------------------------------------------------------------------------------------------


def check_counts(folder: Path, settings: Mapping[str, Any], tensors: int = 0) -> None:
    """Raise `CheckpointError` for more layers or experts than `tensors` that were saved, and than `MOST_PARTS`.

    Building them would take the memory that this says, before any tensor is missed.
    """
    for key, count in _counts(settings):
        if count > max(tensors, MOST_PARTS):
            limit = f"{tensors} tensors were saved" if tensors else f"at most {MOST_PARTS:,} are built without weights"
            raise CheckpointError(
                f"{folder / CONFIG}: {key} is {_number(count)}, and {limit}; correct it, or save the model again"
            )


def _counts(settings: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every number of layers or experts, also in configurations inside."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _counts(value)
        elif isinstance(key, str) and any(word in key for word in ("layers", "n_layer", "experts", "depth")):
            values = value if isinstance(value, list) else [value]
            yield from ((key, each) for each in values if isinstance(each, int))


def check_size(location: str, saved: Saved, draw: Callable[[], nn.Module]) -> None:
    """Raise `CheckpointError` where the model that `draw` makes has far more numbers than were saved.

    The model is drawn up on the device `meta`, where tensors have shapes and no content. What cannot be drawn up there
    is left to transformers, which says why.
    """
    there = sum(prod(tensor.shape) for tensor in saved.values())
    numbers = 0
    with suppress(Exception), torch.device("meta"), no_init_weights():
        numbers = numbers_of(draw())
    if numbers > 2 * there + SLACK:
        raise CheckpointError(
            f"{location}: {CONFIG} describes a model of {_number(numbers)} numbers, and {_number(there)} were saved; "
            "correct its sizes (vocab_size, hidden_size and the like), or save the model again"
        )


def numbers_of(model: nn.Module) -> int:
    """How many numbers the parameters of a model are, those that are shared once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _number(count: int) -> str:
    return f"{count:,}" if abs(count) < 10**18 else "a number of more than 18 digits"


# -- files of tensors ---------------------------------------------------------------------------------------------


def _weight_files(folder: Path, settings: Mapping[str, Any]) -> list[Path]:
    """The files that transformers loads: one, or those of an index, each of them in the folder itself."""
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
    index = _settings(first, {})
    placed = index.get("weight_map")
    if not isinstance(placed, dict) or not placed or not isinstance(index.get("metadata"), dict):
        raise CheckpointError(
            f'{first} should hold {{"metadata": {{}}, "weight_map": {{tensor: file}}}}, and its weight_map is '
            f"{shown(placed)}; save the model again"
        )
    for name, file in placed.items():
        _check_name(first, name, file)
    headers = {file: _header(folder / file) for file in sorted(set(placed.values()))}
    for name, file in placed.items():
        if name not in headers[file]:
            raise CheckpointError(
                f"{first} says that {shortened(name)} lies in {shortened(file)}, which does not hold it; save the "
                "model again"
            )
    return [folder / file for file in headers]


def _check_name(source: Path, what: str, file: object) -> None:
    """Raise `CheckpointError` for a file that is not in the folder of the file `source`, or of another kind."""
    plain = isinstance(file, str) and "/" not in file and "\\" not in file
    if not plain or not str(file).endswith((".safetensors", ".safetensors.index.json")):
        raise CheckpointError(
            f"{source} names {shown(file)} for {shown(what)}; weights are safetensors that lie beside it, in the same "
            "folder"
        )


def _no_weights(folder: Path) -> CheckpointError:
    pickled = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickled:
        return CheckpointError(
            f"{folder} holds only pickled weights ({', '.join(pickled[:3])}), which can run code when they are read; "
            "convert them to safetensors (model.save_pretrained writes it) and load that"
        )
    return CheckpointError(
        f"{folder} has no {WEIGHTS} and no {INDEX}; save the model with model.save_pretrained(folder)"
    )


def _header(file: Path) -> dict[str, SavedTensor]:
    """What the header of a safetensors file says; the library itself checks it against the file."""
    try:
        check_file(file)
    except Unreadable as fault:
        raise CheckpointError(f"{named(file)} {fault}; fetch or save it again") from fault
    try:
        with safe_open(file, framework="pt") as tensors:
            views = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118  (it is no mapping)
            return {name: SavedTensor(view.get_dtype(), tuple(view.get_shape())) for name, view in views.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{named(file)} is not a whole safetensors file ({shortened(str(error), _REASON)}); fetch or save it again"
        ) from error
