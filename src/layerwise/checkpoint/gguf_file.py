"""A plan as a GGUF file, of another one: whole layers go from file to file as bytes, and nothing is quantised again.

The order of tensors and of metadata stays, and so does every byte that does not count or list layers. No tensor is held
in memory, and neither torch nor transformers is imported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path

from layerwise.bounded import kind_of, named
from layerwise.checkpoint.compact import refuse_inexpressible
from layerwise.checkpoint.folder import Origin, draft_of_file
from layerwise.checkpoint.tensor_files import Range, joined, write_pieces
from layerwise.data.model_location import SUFFIX, is_gguf, location_of
from layerwise.errors import CheckpointError, PlanError
from layerwise.gguf import GGUFFile, GGUFTensor, MetadataEntry, PlannedFile, depth_of, planned_file
from layerwise.gguf.file import MAGIC, padded
from layerwise.plan import Plan

TO_GGUF = "save a folder, which convert_hf_to_gguf.py of llama.cpp converts"
"""What to do where a model is no GGUF file."""


def save_gguf(source: Path | str, plan: Plan | str, target: Path | str, *, overwrite: bool = False) -> Origin:
    """Write the GGUF file `source` under `plan` to the file `target`, which llama.cpp opens.

    The plan is a sequence of whole layers of the one model: it skips, reorders and repeats them. The file appears whole
    or not at all; one that is there is replaced only with `overwrite`, and if it is a GGUF file, and not `source`.

    Raises `PlanError` for a plan that is no sequence of the file's layers, `UnsupportedModel` where the metadata cannot
    say what the plan does, and `CheckpointError` for files that are malformed, or in the way.
    """
    source, target, plan = Path(location_of(str(source))), Path(target).expanduser(), Plan.parse(plan)
    refuse_inexpressible(plan, compact="")
    _refuse_in_the_way(source, target, overwrite)
    file = GGUFFile.open(source)
    if len(plan.sources()) > 1:
        raise PlanError(
            "a GGUF file is written of the layers of one other, and the plan takes them from several models; merge the "
            "models from which they were converted, and convert what comes of it"
        )
    plan.check(depth_of(file), plan.sources())
    planned = planned_file(file, plan.order())
    with draft_of_file(target) as draft:
        write_pieces(draft, _pieces(file, planned))
    parameters = sum(prod(tensor.shape) for _, tensor in planned.tensors)
    return Origin(str(plan), {"shell": str(source)}, {}, parameters, None, "none")


def _refuse_in_the_way(source: Path, target: Path, overwrite: bool) -> None:
    if not is_gguf(target):
        raise CheckpointError(
            f"a GGUF file is written as one, and {named(target)} is not called so; write NAME{SUFFIX}"
        )
    kind = kind_of(target)
    if kind == "nothing":
        return
    if kind == "file" and source.exists() and target.samefile(source):
        raise CheckpointError(f"{named(target)} is the file that is read, so it stays; choose another name")
    if kind != "file" or not _begins_as_gguf(target):
        raise CheckpointError(f"{named(target)} is there and is not a model, so it stays; choose another name")
    if not overwrite:
        raise CheckpointError(
            f"{named(target)} is a model already; choose another name, or replace it with --overwrite"
        )


def _begins_as_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _pieces(file: GGUFFile, planned: PlannedFile) -> Iterator[bytes | Range]:
    """The bytes of the new file: those that change as they are, and all others as ranges of the old one."""
    if not planned.changed and planned.tensors == tuple(file.tensors.items()):
        yield file.path, 0, file.size
        return
    head = MAGIC + struct.pack("<IQQ", file.version, len(planned.tensors), len(file.entries))
    yield head
    size = len(head)
    for piece in _metadata(file, planned):
        size += len(piece) if isinstance(piece, bytes) else piece[2] - piece[1]
        yield piece
    table = b"".join(_headers(planned.tensors, file.alignment))
    yield table + bytes(padded(size + len(table), file.alignment) - size - len(table))
    # What lies between two tensors is nobody's, so it goes along, and neighbours stay one range.
    ends = ((tensor, padded(tensor.end, file.alignment)) for _, tensor in planned.tensors)
    for path, begin, end in joined((file.path, tensor.begin, end) for tensor, end in ends):
        yield path, begin, min(end, file.size)
        yield bytes(max(0, end - file.size))


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


def _headers(tensors: Iterable[tuple[str, GGUFTensor]], alignment: int) -> Iterator[bytes]:
    offset = 0
    for name, tensor in tensors:
        text = name.encode()
        dimensions = len(tensor.shape)
        yield struct.pack(
            f"<Q{len(text)}sI{dimensions}QIQ", len(text), text, dimensions, *tensor.shape, tensor.number, offset
        )
        offset += padded(tensor.size, alignment)
