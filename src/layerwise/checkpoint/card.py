"""The model card (`README.md`) of a written checkpoint, with tables of measured results."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.bounded import Unreadable, decoded, read_bytes, read_json
from layerwise.checkpoint.folder import FILE, Origin
from layerwise.data.model_location import EMBEDDED, is_gguf, location_of
from layerwise.errors import CheckpointError
from layerwise.gguf import GGUFFile
from layerwise.plan import Plan
from layerwise.plan.explain import explain
from layerwise.plan.wiring import LEGEND, picture

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("saved_card.md")
SIZE = 2**20

_HUB = "https://huggingface.co/"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")

CELLS = 32
"""Cells of the picture in each direction: the hub shows lines of about eighty characters whole."""

HOST = "shell"
"""The name under which the record of a checkpoint has the model whose parts that are no layers were taken."""


@dataclass(frozen=True, slots=True)
class CardTable:
    """A table of results: an introduction, the column heads, the cells, and the `results` for the metadata."""

    title: str
    sentences: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    results: tuple[EvalResult, ...] = ()


def card_path(model: Path) -> Path:
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
    from huggingface_hub import ModelCard, ModelCardData

    record = _record(model) if origin is None else asdict(origin)
    plan = Plan.parse(str(record["plan"]))
    bases = _bases(record["models"], plan)
    results = [result for table in tables for result in table.results]
    metadata = _metadata(plan, bases, "gguf" if is_gguf(model) else "transformers")
    if results:
        metadata |= {"model_name": name, "eval_results": results}
    card = ModelCard.from_template(
        ModelCardData(**metadata),
        template_path=str(TEMPLATE),
        name=name,
        is_gguf=is_gguf(model),
        plan=plan,
        words=explain(plan).splitlines(),
        cost=plan.cost(),
        picture=f"{picture(plan, CELLS)}\n\n{LEGEND}",
        bases=bases,
        head=next((each for each in bases if each.name == record.get("head")), bases[0]),
        base_table=_base_table(bases, record["weights"]),
        tables=tables,
        markdown_table=markdown_table,
        command=command,
        versions=listed_versions(versions),
        record=record,
        files=file_table(model),
    )
    card_path(model).write_text(f"{card}\n", encoding="utf-8")
    return f"{card}\n"


def listed_versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


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
    named = [name for name in models if name != HOST] if plan.sources() else [HOST]
    bases = [base_model_info(None if name == HOST else name, models[name]) for name in named]
    if models[HOST] not in {base.location for base in bases}:
        bases.insert(0, base_model_info(None, models[HOST]))
    return bases


def _metadata(plan: Plan, bases: Sequence[BaseModelInfo], library: str) -> dict[str, Any]:
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
    order = [(step.source, step.layer) for step in plan.steps()]
    tags = ["layerwise"]
    if len(order) > len(set(order)):
        tags.append("frankenmerge")
    elif models == 1 and len(plan.layers()) <= max(plan.layers()):  # skipped deeper layers are not in a plan
        tags.append("pruned")
    return [*tags, "merge"] if models > 1 else tags


def _base_table(bases: Sequence[BaseModelInfo], weights: Mapping[str, str]) -> str:
    heads = ("in the plan", "model", "licence", "SHA-256 of its weights and configuration")
    rows = [
        (
            base.name or "(all layers)" if len(bases) == 1 else base.name or "(all but the layers)",
            base.link,
            base.license or "not known",
            _code(weights.get(base.name or HOST, "")),
        )
        for base in bases
    ]
    return markdown_table(heads, rows)


def file_table(model: Path) -> str:
    files = [model] if is_gguf(model) else sorted(model.glob("*.safetensors"))
    return markdown_table(
        ("file", "bytes", "SHA-256"), [(each.name, f"{each.stat().st_size:,}", _code(_hash(each))) for each in files]
    )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else "not computed"


def escaped(text: str) -> str:
    return "".join(sign if sign.isalnum() or sign in " ._-/" else f"&#{ord(sign)};" for sign in text)


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
        stated = self.metadata.get("license_name") or self.metadata.get("license")
        return str(stated) if stated else None

    @property
    def link(self) -> str:
        if self.hub_ids == (self.location,):
            return f"[{self.location}]({_HUB}{self.location})"
        local = escaped(Path(self.location).name or self.location)
        made_of = ", ".join(f"[{each}]({_HUB}{each})" for each in self.hub_ids)
        return f"{local} (made of {made_of})" if made_of else local


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
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    if is_gguf(location):
        return _stated_by_gguf(GGUFFile.open(location_of(location)))
    try:
        if is_hub_id(location):
            return ModelCard.load(location, ignore_metadata_errors=True).data.to_dict()
        text = decoded(read_bytes(Path(location_of(location)) / CARD, SIZE))
        return ModelCard(text, ignore_metadata_errors=True).data.to_dict()  # type: ignore[no-untyped-call]
    except (Unreadable, ValueError, TypeError, OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError):
        return {}


def _stated_by_gguf(file: GGUFFile) -> Mapping[str, Any]:
    values = {key.removeprefix("general."): entry.value for key, entry in file.entries.items()}
    urls = [str(value) for key, value in values.items() if re.fullmatch(r"base_model\.\d+\.repo_url", key)]
    hub_ids = [url.removeprefix(_HUB) for url in urls if url.startswith(_HUB)]
    license = {"license": values.get("license"), "license_name": values.get("license.name")}
    return {**license, "license_link": values.get("license.link"), "base_model": hub_ids}
