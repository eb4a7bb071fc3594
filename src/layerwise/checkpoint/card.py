"""The card of a written checkpoint: the `README.md` that the hub shows, made of what is in the folder.

The plan as text, in words and as a picture; the models that it is made of and their licences; how it was made, by which
versions, and what was proved; the hash of every file of weights. What was measured stands in tables that are handed in,
each line of which is a row of a run: without a row the card claims nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from layerwise.bounded import Unreadable, decoded, read_bytes, read_json
from layerwise.checkpoint.folder import FILE, Origin
from layerwise.data.model_location import EMBEDDED, is_gguf, location_of
from layerwise.errors import CheckpointError
from layerwise.gguf import GGUFFile
from layerwise.plan import Plan
from layerwise.plan.explain import explain
from layerwise.plan.wiring import LEGEND, picture

CARD = "README.md"
SIZE = 2**20
"""Bytes of the longest card that is read."""

_HUB = "https://huggingface.co/"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")

CELLS = 32
"""Cells of the picture in each direction: the hub shows lines of about eighty characters whole."""

HOST = "shell"
"""The name under which the record of a checkpoint has the model whose parts that are no layers were taken."""


@dataclass(frozen=True, slots=True)
class CardTable:
    """A table of what was measured: sentences before it, the heads of its columns, and its cells."""

    title: str
    sentences: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def card_path(model: Path) -> Path:
    """The card of a checkpoint: in its folder, or beside a GGUF file."""
    return model.with_suffix(".md") if is_gguf(model) else model / CARD


def write_card(
    model: Path,
    *,
    name: str,
    command: str,
    versions: Mapping[str, str],
    tables: Sequence[CardTable] = (),
    origin: Origin | None = None,
) -> str:
    """Write the card of a checkpoint, and return its text.

    `name` heads it, `command` is what wrote the folder, or the file, and `origin` what of, where no record in the
    folder says it. Raises `CheckpointError` for a folder that layerwise did not write.
    """
    text = card_text(model, name=name, command=command, versions=versions, tables=tables, origin=origin)
    card_path(model).write_text(text, encoding="utf-8")
    return text


def card_text(
    model: Path,
    *,
    name: str,
    command: str,
    versions: Mapping[str, str],
    tables: Sequence[CardTable] = (),
    origin: Origin | None = None,
) -> str:
    """The text of a card; see `write_card`."""
    from huggingface_hub import ModelCardData

    record = _record(model) if origin is None else asdict(origin)
    plan = Plan.parse(str(record["plan"]))
    bases = _bases(record["models"], plan)
    metadata = ModelCardData(**_metadata(plan, bases, "gguf" if is_gguf(model) else "transformers")).to_yaml()
    body = [
        f"# {name}",
        _opening(plan, bases, "a GGUF file" if is_gguf(model) else "an ordinary checkpoint"),
        *_plan_section(plan),
        *_base_section(bases, record["weights"], record.get("head")),
        *_evidence_section(tables),
        *_making_section(record, command, versions),
        *file_section(model),
    ]
    return f"---\n{metadata}\n---\n\n" + "\n\n".join(body) + "\n"


def _record(folder: Path) -> Mapping[str, Any]:
    try:
        record = read_json(folder / FILE)
    except Unreadable as fault:
        raise CheckpointError(
            f"{folder / FILE} {fault}, so nothing says what the model is made of; write it with layerwise save"
        ) from None
    keys = {"plan", "models", "weights", "parameters", "gap"}
    if not isinstance(record, dict) or not keys <= record.keys():
        raise CheckpointError(f"{folder / FILE} is no record of a checkpoint; write it with layerwise save")
    return record


def _bases(models: Mapping[str, str], plan: Plan) -> list[BaseModelInfo]:
    """The models that the plan names or, where it names none, the one that it is about."""
    named = [name for name in models if name != HOST] if plan.sources() else [HOST]
    bases = [base_model_info(None if name == HOST else name, models[name]) for name in named]
    if models[HOST] not in {base.location for base in bases}:
        bases.insert(0, base_model_info(None, models[HOST]))
    return bases


def _metadata(plan: Plan, bases: Sequence[BaseModelInfo], library: str) -> dict[str, Any]:
    """What the hub reads. An entry that the models do not share is left out."""
    shared = {
        key: value
        for key, value in bases[0].metadata.items()
        if all(base.metadata.get(key) == value for base in bases[1:])
    }
    hub_ids = list(dict.fromkeys(each for base in bases for each in base.hub_ids))
    return {
        **({"base_model": hub_ids} if hub_ids else {}),
        **({"base_model_relation": "merge"} if hub_ids and len(bases) > 1 else {}),
        **shared,
        "library_name": library,
        "tags": _tags(plan, len(bases)),
    }


def _tags(plan: Plan, models: int) -> list[str]:
    """The terms under which such models are looked for."""
    order = [(step.source, step.layer) for step in plan.steps()]
    tags = ["layerwise"]
    if len(order) > len(set(order)):
        tags.append("frankenmerge")
    elif models == 1 and _skips(plan):
        tags.append("pruned")
    return [*tags, "merge"] if models > 1 else tags


def _skips(plan: Plan) -> bool:
    """Whether a layer below the deepest one does not run; that deeper ones do not run, a plan alone does not show."""
    layers = plan.layers()
    return len(layers) <= max(layers)


def _opening(plan: Plan, bases: Sequence[BaseModelInfo], form: str) -> str:
    count = len(plan.steps())
    whose = f"of {_link(bases[0])}" if len(bases) == 1 else f"of {len(bases)} models"
    return (
        f"{count} layer{'s' * (count != 1)} {whose}, written as {form} by layerwise. No weight was "
        "trained or averaged in writing it: every layer is one of those that the plan names."
    )


def _plan_section(plan: Plan) -> Iterator[str]:
    cost = plan.cost()
    yield "## Plan"
    yield f"    {plan}"
    yield "Layers count from 0, and ranges include both ends. In words:"
    yield "\n".join(f"- {line}" for line in explain(plan).splitlines())
    yield (
        f"It evaluates {cost.evaluations} layers for each token in {cost.stages} sequential stages, {cost.weights} of "
        f"them distinct, and has {cost.slots} slots of the key-value cache. What each step reads:"
    )
    yield f"```text\n{picture(plan, CELLS)}\n\n{LEGEND}\n```"


def _base_section(bases: Sequence[BaseModelInfo], weights: Mapping[str, str], head: str | None) -> Iterator[str]:
    yield f"## Base model{'s' * (len(bases) > 1)}"
    heads = ("in the plan", "model", "licence", "SHA-256 of its weights and configuration")
    rows = [
        (
            base.name or "(all layers)" if len(bases) == 1 else base.name or "(all but the layers)",
            _link(base),
            base.license or "not known",
            _code(weights.get(base.name or HOST, "")),
        )
        for base in bases
    ]
    yield markdown_table(heads, rows)
    if len(bases) > 1:
        yield (
            f"What lies before the layers (the embedding) is that of {_link(bases[0])}, and what lies behind them (the "
            f"last norm, the head) that of {_link(next((each for each in bases if each.name == head), bases[0]))}."
        )
    unknown = [base for base in bases if base.license is None]
    if unknown:
        yield (
            f"**The licence of {' and '.join(map(_link, unknown))} is not known**: no card beside the weights states "
            "one. Find it out before you share this model."
        )
    elif len({base.license for base in bases}) > 1:
        yield "The licences differ: what is made of all of them has to keep each."


def _evidence_section(tables: Sequence[CardTable]) -> Iterator[str]:
    yield "## Evidence"
    if not tables:
        yield "Nothing was measured for this card, and it claims nothing of what the model can do."
    for table in tables:
        yield f"### {table.title}"
        if table.sentences:
            yield "\n".join(table.sentences)
        yield markdown_table(table.columns, table.rows)


def _making_section(origin: Mapping[str, Any], command: str, versions: Mapping[str, str]) -> Iterator[str]:
    yield "## How it was made"
    yield f"```sh\n{command}\n```"
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + "."
    gap = origin["gap"]
    if gap is not None:
        close = "equal to" if gap == 0 else f"within {gap:.2g} of the size of"
        yield f"The files were loaded again with plain transformers, and their logits are {close} those of the plan."
    elif origin.get("proof") == "keys":
        yield "The names and the shapes of all tensors are those that transformers expects; no logits were compared."
    else:
        yield "The weights were copied from file to file; no logits were compared."
    if origin.get("note"):
        yield f"Note: {origin['note']}."


def file_section(model: Path) -> Iterator[str]:
    """The files of weights of a checkpoint, each with its size and its hash."""
    files = [model] if is_gguf(model) else sorted(model.glob("*.safetensors"))
    yield "## Files"
    yield markdown_table(
        ("file", "bytes", "SHA-256"), [(each.name, f"{each.stat().st_size:,}", _code(_hash(each))) for each in files]
    )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _link(base: BaseModelInfo) -> str:
    if base.hub_ids == (base.location,):
        return f"[{base.location}](https://huggingface.co/{base.location})"
    local = escaped(Path(base.location).name or base.location)
    made_of = ", ".join(f"[{each}](https://huggingface.co/{each})" for each in base.hub_ids)
    return f"{local} (made of {made_of})" if made_of else local


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, whose cells may hold any text in one line."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else "not computed"


def escaped(text: str) -> str:
    """A name from anywhere, which is no markup: letters, digits and a few signs are left as they are."""
    return "".join(sign if sign.isalnum() or sign in " ._-/" else f"&#{ord(sign)};" for sign in text)


# -- what is known of the models --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BaseModelInfo:
    """One of the models: its name in the plan, where it lies, and what its card says.

    `hub_ids` are its id on the hub or, for a folder, those that its card names. `metadata` are the entries of its card
    that hold for a model made of it: `license` and its name and link, `language`, `pipeline_tag`.
    """

    name: str | None
    location: str
    hub_ids: tuple[str, ...]
    metadata: Mapping[str, Any]

    @property
    def license(self) -> str | None:
        """The licence that its card states."""
        stated = self.metadata.get("license_name") or self.metadata.get("license")
        return str(stated) if stated else None


def base_model_info(name: str | None, location: str) -> BaseModelInfo:
    """What the card of the model at `location` says; a card that cannot be read says nothing."""
    metadata = _stated(location)
    if is_hub_id(location):
        hub_ids: tuple[str, ...] = (location,)
    else:
        stated = metadata.get("base_model") or ()
        hub_ids = tuple(str(each) for each in (stated if isinstance(stated, list | tuple) else (stated,)))
    wanted = ("license", "license_name", "license_link", "language", "pipeline_tag")
    return BaseModelInfo(name, location, hub_ids, {key: metadata[key] for key in wanted if metadata.get(key)})


def is_hub_id(location: str) -> bool:
    """Whether a location is an id on the hub, and no folder and none of the models of the package.

    >>> is_hub_id("org/name"), is_hub_id("./folder"), is_hub_id("demo")
    (True, False, False)
    """
    return location not in EMBEDDED and _HUB_ID.fullmatch(location) is not None and not Path(location).exists()


def _stated(location: str) -> Mapping[str, Any]:
    from huggingface_hub import ModelCard

    if is_gguf(location):
        return _stated_by_gguf(GGUFFile.open(location_of(location)))
    path = _fetched(location) if is_hub_id(location) else Path(location_of(location)) / CARD
    if path is None:
        return {}
    try:
        return ModelCard(decoded(read_bytes(path, SIZE)), ignore_metadata_errors=True).data.to_dict()  # type: ignore[no-untyped-call]
    except (Unreadable, ValueError, TypeError):
        return {}


def _stated_by_gguf(file: GGUFFile) -> Mapping[str, Any]:
    """What the metadata of a GGUF file says that a card says too."""
    values = {key.removeprefix("general."): entry.value for key, entry in file.entries.items()}
    urls = [str(value) for key, value in values.items() if re.fullmatch(r"base_model\.\d+\.repo_url", key)]
    hub_ids = [url.removeprefix(_HUB) for url in urls if url.startswith(_HUB)]
    license = {"license": values.get("license"), "license_name": values.get("license.name")}
    return {**license, "license_link": values.get("license.link"), "base_model": hub_ids}


def _fetched(hub_id: str) -> Path | None:
    """The card of a model on the hub: from the cache, or else fetched; `None` where neither can be."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(hf_hub_download(hub_id, CARD))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError):
        return None
