"""Save a plan as a GGUF file. Layers are copied as bytes, without torch or transformers.

Only layers with a quantization type in the plan and layers of Hugging Face folders are quantized again. The order of
tensors and all other metadata stay unchanged.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from layerwise.bounded import kind_of, named
from layerwise.checkpoint.compact import refuse_inexpressible
from layerwise.checkpoint.folder import Origin, draft_of_file
from layerwise.checkpoint.tensor_files import Range, joined, write_pieces
from layerwise.data.model_location import location_of
from layerwise.errors import CheckpointError, PlanError, UnsupportedModelError
from layerwise.gguf import GGUFFile, GGUFTensor, MetadataEntry, PlannedFile, depth_of, planned_file
from layerwise.gguf.file import MAGIC, TENSOR_TYPES, GGMLType, padded
from layerwise.plan import Plan
from layerwise.plan.checks import TYPES, WeightType, weight_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TO_GGUF = (
    "pass the models a (the file that the folder was made from) and b (the folder) with the plan b:0-27, or convert "
    "the folder with llama.cpp's convert_hf_to_gguf.py"
)

_MATRIX = re.compile(r"blk\.(\d+)\..*weight")
_LINEAR = re.compile(r"\.(attn|ffn)_\w+\.weight$")


def save_gguf(
    source: Path | str,
    plan: Plan | str,
    target: Path | str,
    *,
    folders: Mapping[str, Path | str] = MappingProxyType({}),
    overwrite: bool = False,
    prove: bool = False,
) -> Origin:
    """Save the layers of the GGUF file `source` in the order of `plan` as the GGUF file `target`.

    The target is written completely or not at all.

    Args:
        source: The GGUF file.
        plan: A sequence of layers, optionally with quantization types (`0-13 Q4_0:14 15-29`).
        target: The output file.
        folders: Maps names in the plan (`b` in `0-13 b:14-29`) to Hugging Face folders, whose layers are quantized to
            the types of the source's layers. If all layers come from one folder, so does the rest of the model.
        overwrite: Replace another GGUF file.
        prove: Compare the logits with those of the plan, unless `folders` are used.

    Raises:
        PlanError: If the plan is not a sequence of layers.
        UnsupportedModelError: If the metadata cannot express the plan.
        CheckpointError: If a file is malformed, or the target exists.
    """
    source, target, plan = Path(location_of(str(source))), Path(target).expanduser(), Plan.parse(plan)
    refuse_inexpressible(plan, compact="", types=True)
    _refuse_in_the_way(source, target, overwrite)
    file = GGUFFile.open(source)
    if len(plan.sources() - folders.keys()) > 1:
        raise PlanError(
            "a GGUF file can only combine the layers of one other file and of folders, but the plan uses several "
            "files; merge the original models, and convert the result"
        )
    plan.check(depth_of(file), plan.sources())
    planned = planned_file(file, plan.order())
    rewritten = dict(_quantize_tensors(file, planned, [weight_type(step.source) for step in plan.steps()]))
    if used := plan.sources() & folders.keys():
        from layerwise.checkpoint.gguf_folder import tensors_of_folders

        rewritten |= tensors_of_folders(file, planned, {name: folders[name] for name in sorted(used)}, plan.steps())
    with draft_of_file(target) as draft:
        write_pieces(draft, _file_pieces(file, planned, rewritten))
        gap = _compare_logits(source, plan, draft) if prove and not used else None
    parameters = sum(prod(tensor.shape) for _, tensor in planned.tensors)
    sources = {"shell": str(source)} | {name: str(folders[name]) for name in sorted(used)}
    return Origin(str(plan), sources, {}, parameters, gap, "none" if gap is None else "logits")


def _compare_logits(source: Path, plan: Plan, draft: Path) -> float:
    import torch

    from layerwise.checkpoint.proof import proof_inputs
    from layerwise.stack import load
    from layerwise.stack.rounding import compare

    stack, copy = load(source), load(draft)
    inputs = proof_inputs(stack, None)
    with torch.inference_mode():
        logits = copy.logits(Plan.identity(copy.depth), **inputs), stack.logits(plan, **inputs)
        agreement = compare(*logits, stack.capture(**inputs).state.shape[-1], copy.depth)
    if not agreement.holds:
        raise UnsupportedModelError(
            f"the logits of the new file and of the plan are {agreement}; run the plan in place"
        )
    return agreement.gap


def _refuse_in_the_way(source: Path, target: Path, overwrite: bool) -> None:
    kind = kind_of(target)
    if kind == "nothing":
        return
    if kind == "file" and source.exists() and target.samefile(source):
        raise CheckpointError(
            f"{named(target)} is the source, so layerwise will not overwrite it. Choose another name."
        )
    if kind != "file" or not _begins_as_gguf(target):
        raise CheckpointError(
            f"{named(target)} already exists but contains no model, so layerwise will not overwrite it. Choose another "
            "name."
        )
    if not overwrite:
        raise CheckpointError(
            f"{named(target)} is already a model. Choose another name, or replace it with --overwrite."
        )


def _begins_as_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _quantize_tensors(
    file: GGUFFile, planned: PlannedFile, types: Sequence[WeightType | None]
) -> Iterator[tuple[str, Rewritten]]:
    for name, tensor in planned.tensors:
        match = _MATRIX.fullmatch(name)
        slot = len(types) if match is None else int(match[1])
        target = types[slot] if slot < len(types) else None
        if target is None or (len(tensor.shape) == 1 and target.seed is None):
            continue
        reason = _unquantizable(tensor, target)
        if reason:
            raise UnsupportedModelError(
                f"{tensor.name} cannot be quantized to {target}: {reason}; write the layer without the type"
            )
        kind = GGML_TYPES[target.type]
        if tensor.shape[0] % kind.values:  # as in llama.cpp, for rows of incomplete blocks
            kind = GGML_TYPES["F16"]
        if tensor.type != kind:
            need_gguf(f"quantizing matrices to {kind.name}")
            yield name, Rewritten(kind, partial(rows_of, file, tensor))


def _unquantizable(tensor: GGUFTensor, target: WeightType) -> str:
    if target.seed is not None:
        return "noise cannot be stored"
    if len(tensor.shape) > 2 or not _LINEAR.search(tensor.name):
        return "its storage in a quantized layer is not standardized"
    return ""


def _file_pieces(file: GGUFFile, planned: PlannedFile, rewritten: Mapping[str, Rewritten]) -> Iterator[bytes | Range]:
    if not rewritten and not planned.changed and planned.tensors == tuple(file.tensors.items()):
        yield file.path, 0, file.size
        return
    head = MAGIC + struct.pack("<IQQ", file.version, len(planned.tensors), len(file.entries))
    yield head
    size = len(head)
    for piece in _metadata(file, planned):
        size += len(piece) if isinstance(piece, bytes) else piece[2] - piece[1]
        yield piece
    table = b"".join(_headers(planned.tensors, rewritten, file.alignment))
    yield table + bytes(padded(size + len(table), file.alignment) - size - len(table))
    for new, run in groupby(planned.tensors, key=lambda each: each[0] in rewritten):
        if new:
            for name, tensor in run:
                yield from rewritten[name].content(name)
                written = _size(tensor, rewritten[name])
                yield bytes(padded(written, file.alignment) - written)
            continue
        # Padding between tensors is copied, too, so that adjacent tensors are one range.
        ends = [(tensor, padded(tensor.end, file.alignment)) for _, tensor in run]
        for path, begin, end in joined((file.path, tensor.begin, end) for tensor, end in ends):
            yield path, begin, min(end, file.size)
            yield bytes(max(0, end - file.size))


def _size(tensor: GGUFTensor, new: Rewritten | None) -> int:
    return tensor.size if new is None else prod(tensor.shape) // new.kind.values * new.kind.size


def _metadata(file: GGUFFile, planned: PlannedFile) -> Iterator[bytes | Range]:
    kept: list[MetadataEntry] = []
    for entry in file.entries.values():
        if entry.key not in planned.changed:
            kept.append(entry)
            continue
        yield from joined((file.path, each.begin, each.end) for each in kept)
        kept.clear()
        yield planned.changed[entry.key]
    yield from joined((file.path, each.begin, each.end) for each in kept)


def _headers(
    tensors: Iterable[tuple[str, GGUFTensor]], rewritten: Mapping[str, Rewritten], alignment: int
) -> Iterator[bytes]:
    offset = 0
    for name, tensor in tensors:
        new, text = rewritten.get(name), name.encode()
        number = tensor.number if new is None else NUMBERS_OF[new.kind.name]
        dimensions = len(tensor.shape)
        yield struct.pack(f"<Q{len(text)}sI{dimensions}QIQ", len(text), text, dimensions, *tensor.shape, number, offset)
        offset += padded(_size(tensor, new), alignment)


CHUNK = 1 << 20
"""Approximate number of values that are quantized at once."""

GGML_TYPES = {each.name: each for each in TENSOR_TYPES.values()}
NUMBERS_OF = {each.name: number for number, each in TENSOR_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A tensor that is quantized again: its new type, and its float32 values, some rows at a time."""

    kind: GGMLType
    rows: Callable[[], Iterator[NDArray[np.float32]]]

    def content(self, name: str) -> Iterator[bytes]:
        """Yield the quantized bytes. Raises `CheckpointError` if the package gguf does not support the type."""
        import gguf

        for numbers in self.rows():
            try:
                yield gguf.quants.quantize(numbers, gguf.GGMLQuantizationType(NUMBERS_OF[self.kind.name])).tobytes()
            except NotImplementedError:
                raise CheckpointError(
                    f"the package gguf cannot quantize {name} to {self.kind.name}, the type of the source file; use a "
                    f"source file in F16, or in one of {', '.join(TYPES)}"
                ) from None


def need_gguf(what: str) -> None:
    if find_spec("gguf") is None:
        raise CheckpointError(f"{what} requires the package gguf: pip install 'layerwise[gguf]'")


def rows_of(file: GGUFFile, tensor: GGUFTensor) -> Iterator[NDArray[np.float32]]:
    """Yield the float32 rows of a matrix, about `CHUNK` values at a time."""
    import gguf
    import numpy as np

    width, rows = tensor.shape
    stored, size = gguf.GGMLQuantizationType(tensor.number), tensor.size // rows
    with file.path.open("rb") as content:
        content.seek(tensor.begin)
        for first in range(0, rows, step := max(1, CHUNK // width)):
            count = min(step, rows - first)
            data = np.frombuffer(content.read(count * size), dtype=np.uint8)
            if data.size < count * size:
                raise CheckpointError(f"{named(file.path)} was truncated while it was read; start again")
            try:
                numbers = gguf.quants.dequantize(data.reshape(count, size), stored)
            except NotImplementedError:
                raise CheckpointError(
                    f"the package gguf cannot dequantize {tensor.name}, which is {tensor.type.name}; start from a file "
                    "in F16, or in a supported type"
                ) from None
            yield numbers.astype(np.float32, copy=False)
