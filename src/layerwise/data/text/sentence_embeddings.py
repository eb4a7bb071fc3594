"""Embeddings of sentences: how a folder of sentence-transformers makes one vector of the states of a text.

Such a folder holds an encoder without a head, and what turns its last states into an embedding:

    modules.json                 the modules in their order: Transformer, Pooling, Normalize
    1_Pooling/config.json        which states are pooled: their mean, or that of the first token
    sentence_bert_config.json    the longest text that is read, in tokens
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from layerwise.bounded import Unreadable, read_json, shown
from layerwise.data.stored_files import read_settings
from layerwise.errors import CheckpointError, MeasureError

if TYPE_CHECKING:
    from torch import Tensor

MODULES = "modules.json"
BESIDE = (MODULES, "sentence_bert_config.json", "config_sentence_transformers.json")

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Pooling:
    """How the states of a text become its embedding: `modes` as sentence-transformers names them.

    Texts have `longest` tokens at most, where that is known; `others` are modules that do something else.
    """

    modes: tuple[str, ...]
    is_normalised: bool = False
    longest: int | None = None
    others: tuple[str, ...] = ()

    def check(self, name: str) -> None:
        """Raise `MeasureError` for embeddings of the model called `name` that are not made here."""
        unsupported = [f"the module {each}" for each in self.others]
        unsupported += [] if self.modes in (("mean",), ("cls",)) else [f"pooling by {' and '.join(self.modes) or '?'}"]
        if unsupported:
            raise MeasureError(
                f"the embeddings of {name} are made by {', '.join(unsupported)}, and layerwise makes those that are "
                "the mean of the last states (mean) or the state of the first token (cls), normalised or not; plans of "
                "it can be saved, and measured with sentence-transformers"
            )

    def __call__(self, states: Tensor, mask: Tensor) -> Tensor:
        """The embeddings (batch, width) of last states (batch, seq, width), padded on the right where `mask` is 0.

        >>> import torch
        >>> states, mask = torch.tensor([[[3.0, 4.0], [9.0, 9.0]]]), torch.tensor([[1, 0]])
        >>> Pooling(("mean",))(states, mask).tolist(), Pooling(("cls",), True)(states, mask).tolist()
        ([[3.0, 4.0]], [[0.6000000238418579, 0.800000011920929]])
        """
        if self.modes == ("cls",):
            pooled = states[:, 0].float()
        else:
            counted = mask.to(states.device).unsqueeze(-1)
            pooled = (states.float() * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        return pooled / pooled.norm(dim=-1, keepdim=True).clamp(min=_TINY) if self.is_normalised else pooled


def pooling_in(folder: Path) -> Pooling | None:
    """How the model in `folder` makes embeddings; `None` for one that is none of sentence-transformers.

    Raises `CheckpointError` for files that are malformed.
    """
    modules = _modules(folder)
    if not modules:
        return None
    kinds = {str(each["type"]).rpartition(".")[2]: str(each.get("path", "")) for each in modules}
    settings: Mapping[str, Any] = {}
    if "Pooling" in kinds:
        settings = read_settings(_inside(folder, kinds["Pooling"]) / "config.json", {})
    longest = read_settings(folder / "sentence_bert_config.json", {}).get("max_seq_length")
    others = tuple(kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize"))
    return Pooling(_modes(settings), "Normalize" in kinds, longest if isinstance(longest, int) else None, others)


def copy_modules(folder: Path, target: Path) -> None:
    """Copy to `target` what makes the model of `folder` one of sentence-transformers; nothing where it is none."""
    modules = _modules(folder)
    files = [folder / name for name in BESIDE if modules and (folder / name).is_file()]
    for path in {str(each.get("path", "")) for each in modules} - {""}:
        files += [each for each in _inside(folder, path).glob("*") if each.suffix in (".json", ".safetensors")]
    for file in files:
        copy = target / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _modules(folder: Path) -> list[Mapping[str, Any]]:
    """The modules in their order; none where the folder lists none."""
    if not (folder / MODULES).is_file():
        return []
    try:
        content = read_json(folder / MODULES)
    except Unreadable as fault:
        raise CheckpointError(f"{folder / MODULES} {fault}; restore the file, or save the model again") from fault
    if isinstance(content, list) and all(isinstance(each, dict) and "type" in each for each in content):
        return content
    raise CheckpointError(
        f"{folder / MODULES} holds {shown(content)}, and no list of modules with their types; restore the file"
    )


def _inside(folder: Path, path: str) -> Path:
    """The folder of a module. Raises `CheckpointError` for one that lies elsewhere."""
    parts = PurePosixPath(path).parts
    if PurePosixPath(path).is_absolute() or ".." in parts:
        raise CheckpointError(f"{folder / MODULES} names the folder {shown(path)}, which is not in {folder}")
    return folder.joinpath(*parts)


def _modes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What is pooled, as either layout of the file says it."""
    mode = settings.get("pooling_mode")
    if mode is not None:
        return (mode,) if isinstance(mode, str) else tuple(map(str, mode))
    flags = (name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True)
    return tuple(flag.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token") for flag in flags)
