"""Model cards (`README.md`) of saved checkpoints, with huggingface_hub's `ModelCard`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise import __version__
from layerwise.bounded import UnreadableError, decoded, read_bytes, read_json
from layerwise.checkpoint.folder import FILE, Origin
from layerwise.data.model_location import EMBEDDED, is_gguf, location_of
from layerwise.errors import CheckpointError
from layerwise.gguf import GGUFFile
from layerwise.plan import Plan
from layerwise.plan.explain import explain

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("saved_card.md")
MAX_CARD_BYTES = 2**20
INHERITED = ("license", "license_name", "license_link", "language", "pipeline_tag")

_HUB = "https://huggingface.co/"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class CardTable:
    """A table in a model card. `results` are the same numbers for the card's metadata."""

    title: str
    sentences: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    results: tuple[EvalResult, ...] = ()


def card_path(model: Path) -> Path:
    return model.with_suffix(".md") if is_gguf(model) else model / CARD


def write_card(
    model: Path, *, name: str, command: str, tables: Sequence[CardTable] = (), origin: Origin | None = None
) -> str:
    """Write the model card of a checkpoint, and return the text of the card.

    Args:
        model: The folder or GGUF file.
        name: The heading.
        command: The command that wrote the model.
        tables: Results to show in the card.
        origin: Plan and source models (default: read from the folder).

    Raises:
        CheckpointError: If the folder was not written by layerwise.
    """
    from huggingface_hub import ModelCard, ModelCardData

    record = _read_record(model) if origin is None else asdict(origin)
    plan = Plan.parse(str(record["plan"]))
    bases = {location: read_metadata(location) for location in dict.fromkeys(record["models"].values())}
    metadata = _combine(plan, list(bases.values()))
    results = [result for table in tables for result in table.results]
    if results:
        metadata |= {"model_name": name, "eval_results": results}
    card = ModelCard.from_template(
        ModelCardData(library_name="gguf" if is_gguf(model) else "transformers", **metadata),
        template_path=str(TEMPLATE),
        name=name,
        is_gguf=is_gguf(model),
        plan=plan,
        words=explain(plan).splitlines(),
        bases=[
            (link_to(location, stated), stated.get("license_name") or stated.get("license"))
            for location, stated in bases.items()
        ],
        tables=tables,
        markdown_table=markdown_table,
        command=command,
        version=__version__,
        record=record,
    )
    card_path(model).write_text(f"{card}\n", encoding="utf-8")
    return f"{card}\n"


def _read_record(folder: Path) -> Mapping[str, Any]:
    try:
        record = read_json(folder / FILE)
    except UnreadableError as fault:
        raise CheckpointError(f"{folder / FILE} {fault}; create it with layerwise save") from None
    if not isinstance(record, dict) or not {"plan", "models", "gap"} <= record.keys():
        raise CheckpointError(f"{folder / FILE} is not the record of a checkpoint; create it with layerwise save")
    return record


def _combine(plan: Plan, bases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = bases
    shared = {
        key: first[key] for key in INHERITED if key in first and all(each.get(key) == first[key] for each in others)
    }
    hub_ids = list(dict.fromkeys(each for base in bases for each in base["base_model"]))
    visits = [(step.source, step.layer) for step in plan.steps()]
    tags = ["layerwise"]
    if len(visits) > len(set(visits)):
        tags.append("frankenmerge")
    elif not others and len(plan.layers()) <= max(plan.layers()):  # deeper layers may be skipped, too
        tags.append("pruned")
    if others:
        tags.append("merge")
    relation = {"base_model_relation": "merge"} if others and hub_ids else {}
    return {"base_model": hub_ids or None, **relation, **shared, "tags": tags}


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def escape(text: str) -> str:
    return "".join(sign if sign.isalnum() or sign in " ._-/" else f"&#{ord(sign)};" for sign in text)


def link_to(location: str, metadata: Mapping[str, Any]) -> str:
    """Return a link to a hub model, or the name of a folder with links to its base models."""
    links = ", ".join(f"[{each}]({_HUB}{each})" for each in metadata["base_model"])
    if metadata["base_model"] == [location]:
        return links
    local = escape(Path(location).name or location)
    return f"{local} (made of {links})" if links else local


def is_hub_id(location: str) -> bool:
    """Return True if a location is a hub id, and not a folder or a bundled model.

    >>> is_hub_id("org/name"), is_hub_id("./folder"), is_hub_id("demo")
    (True, False, False)
    """
    return location not in EMBEDDED and _HUB_ID.fullmatch(location) is not None and not Path(location).exists()


def read_metadata(location: str) -> dict[str, Any]:
    """Return the metadata that a new model inherits from the card of the model at `location`.

    The entry `base_model` has hub ids: that of the model itself or, if the model is not on the hub, those in its card.
    """
    stated = _read_gguf_metadata(location) if is_gguf(location) else _read_card_metadata(location)
    made_of = [location] if is_hub_id(location) else stated.get("base_model") or []
    inherited = {key: stated[key] for key in INHERITED if stated.get(key)}
    return {**inherited, "base_model": [str(each) for each in (made_of if isinstance(made_of, list) else [made_of])]}


def _read_card_metadata(location: str) -> Mapping[str, Any]:
    from huggingface_hub import ModelCard
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        if is_hub_id(location):
            return ModelCard.load(location, ignore_metadata_errors=True).data.to_dict()
        text = decoded(read_bytes(Path(location_of(location)) / CARD, MAX_CARD_BYTES))
        return ModelCard(text, ignore_metadata_errors=True).data.to_dict()  # type: ignore[no-untyped-call]
    except (
        UnreadableError,
        ValueError,
        TypeError,
        OSError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    ):
        return {}


def _read_gguf_metadata(location: str) -> Mapping[str, Any]:
    entries = GGUFFile.open(location_of(location)).entries
    values = {key.removeprefix("general.").replace(".", "_"): str(entry.value) for key, entry in entries.items()}
    urls = [value for key, value in values.items() if re.fullmatch(r"base_model_\d+_repo_url", key)]
    return {**values, "base_model": [url.removeprefix(_HUB) for url in urls if url.startswith(_HUB)]}
