"""Find the models whose layers are merged: their variants, locations and training records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerwise.data.model_location import location_of
from layerwise.errors import ModelError, RunError, near_matches
from layerwise.plan.checks import source_name
from layerwise.results.run import MANIFEST
from layerwise.results.training_record import TrainingRecord, find_trained_models, parse_refined_depth
from layerwise.runner.reporter import Reporter
from layerwise.runner.training_runs import (
    UNFINISHED,
)
from layerwise.train.methods import added_by

Variants = Mapping[str, Mapping[str, "SourceModel"]]


UNTRAINED = "models"


@dataclass(frozen=True, slots=True)
class SourceModel:
    variant: str
    location: str
    record: TrainingRecord | None

    @property
    def added(self) -> str | None:
        """Return a description of modules that training added to its layers, or None if there are none."""
        return None if self.record is None else added_by(self.record.recipe.get("extension"))


def read_source_models(locations: Sequence[str]) -> tuple[SourceModel, ...]:
    """Return the models at `locations`. If a location is a run, return all of its finished models."""
    models = tuple(source for location in locations for source in _at(location))
    for number, source in enumerate(models):
        if source.location in {earlier.location for earlier in models[:number]}:
            raise ModelError(f"Models must be distinct, got {source.location} twice. Pass each model once.")
    return models


def group_by_variant(models: Sequence[SourceModel]) -> dict[str, dict[str, SourceModel]]:
    variants: dict[str, list[SourceModel]] = {}
    for source in models:
        variants.setdefault(source.variant, []).append(source)
    return {variant: name_models(members) for variant, members in variants.items()}


def name_models(models: Sequence[SourceModel]) -> dict[str, SourceModel]:
    """Name models a, b, c, and so on. After z come a1 to z1.

    >>> list(name_models([SourceModel("variant", str(number), None) for number in range(28)]))[24:]
    ['y', 'z', 'a1', 'b1']
    """
    return {source_name(number): source for number, source in enumerate(models)}


def check_one_base(models: Mapping[str, SourceModel]) -> tuple[str, ...]:
    """Check that models were trained from the same base model, and return notes if their training data differ."""
    bases: dict[str, str] = {}
    for name, source in models.items():
        if source.record is not None:
            bases.setdefault(source.record.base, name)
    if len(bases) > 1:
        (first, one), (second, other), *_ = bases.items()
        raise ModelError(
            f"{one} ({models[one].location}) and {other} ({models[other].location}) were trained from different base "
            f"models (weights {first[:12]} and {second[:12]}). Merge models with the same base."
        )
    notes = []
    data = {source.record.data: source.record.data_name for source in models.values() if source.record is not None}
    if len(data) > 1:
        notes.append(
            f"the models were trained on different examples ({', '.join(dict.fromkeys(data.values()))}); the "
            "LayerShuffle paper merges models that were trained on the same examples"
        )
    unknown = [name for name, source in models.items() if source.record is None]
    if unknown and len(models) > 1:
        notes.append(
            f"the base of {', '.join(unknown)} is unknown; layers of different base models do not fit together"
        )
    return tuple(notes)


def _at(location: str) -> Iterator[SourceModel]:
    folder = Path(location).expanduser()
    if (folder / MANIFEST).is_file():
        trained = find_trained_models(folder)
        if not trained:
            raise RunError(f"{location} {UNFINISHED}")
        for model in trained:
            source = _source(str(model), TrainingRecord.read(model))
            if parse_refined_depth(source.variant) is None:
                yield source
    else:
        yield _source(location, TrainingRecord.read(Path(location_of(location))))


def _source(location: str, record: TrainingRecord | None) -> SourceModel:
    return SourceModel(UNTRAINED if record is None else record.variant, location, record)


def read_variants(
    locations: Sequence[str], variant: str | None, reporter: Reporter
) -> dict[str, dict[str, SourceModel]]:
    variants = group_by_variant(read_source_models(locations))
    if variant is not None and variant not in variants:
        raise ModelError(f"Unknown variant {variant!r}; {near_matches(variant, variants)}")
    selected = {name: models for name, models in variants.items() if variant in (None, name)}
    for name, models in selected.items():
        notes = check_one_base(models)
        reporter.log(f"{name}:")
        for letter, source in models.items():
            reporter.log(f"  {letter}  {source.location}")
        for note in notes:
            reporter.log(f"note: {note}")
    return selected


def refuse_added(sources: Iterable[SourceModel]) -> None:
    added = next((source.added for source in sources if source.added), None)
    if added:
        raise ModelError(
            f"The layers were trained with {added}, which ordinary checkpoints cannot store. Save models of another "
            "variant."
        )
