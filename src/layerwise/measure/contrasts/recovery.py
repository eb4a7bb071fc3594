"""Does recovery follow importance? Rank correlations over layers, with the nulls that a naive reading lacks.

Rows of measure `recovery`, of no layer, the damage as condition and what was trained as arm; recovery against the
effect of skipping the layer:

    spearman               by area, over the layers that were damaged: those with something to recover from
    spearman_given_damage  the same with the initial damage held fixed: the partial rank correlation
    spearman_published     by area, over all layers, those without damage counted as recovered at once: as was published
    layers                 how many layers were damaged, and so stand behind the first two

`spearman_steps`, `spearman_steps_given_damage` and `spearman_steps_published` are the same by steps instead of area.
Each has the band against `shuffled_layers` that the effects of shuffled layers would give. Layers are the units: the
interval says what another model's layers might show (`layerwise.measure.stats.ranks`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.measure.stats.ranks import rank_correlation
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ABLATION, ALL, RECOVERY, SHUFFLED_LAYERS, SKIPPING

SHUFFLES = 2_000


@dataclass(frozen=True, slots=True)
class Recovered:
    """How one layer recovered: the damage at the start, the area above the twin, the steps; `None` where unknown.

    `damaged` is false for a layer that had nothing to recover from.
    """

    layer: int
    damage: float | None
    area: float | None
    steps: float | None
    damaged: bool = True

    @classmethod
    def at_once(cls, layer: int) -> Recovered:
        """A layer that the damage did not hurt."""
        return cls(layer, damage=0.0, area=0.0, steps=0.0, damaged=False)


def associations(
    treatment: tuple[str, str],
    layers: Sequence[Recovered],
    effects: Iterable[Score],
    seed: int,
    *,
    shuffles: int = SHUFFLES,
) -> Iterator[Score]:
    """The rows of one treatment, a damage and what is trained after it, over the layers that also have an effect of
    skipping among `effects`."""
    skipped = {
        row.layer: row.value
        for row in Rows(effects).where(
            measure=ABLATION, task=ALL, metric=SKIPPING, layer=PRESENT, part=None, against=None
        )
        if row.layer is not None
    }
    shared = [each for each in layers if each.layer in skipped]
    damaged = [each for each in shared if each.damaged]
    if not shared:
        return
    damage, scope = treatment
    yield Score(RECOVERY, "layers", float(len(damaged)), condition=damage, arm=scope)
    for name, speed in (("spearman", "area"), ("spearman_steps", "steps")):
        for metric, chosen, given in (
            (name, damaged, False),
            (f"{name}_given_damage", damaged, True),
            (f"{name}_published", shared, False),
        ):
            yield from _correlated(treatment, metric, chosen, speed, skipped, given, (seed, shuffles))


def _correlated(
    treatment: tuple[str, str],
    metric: str,
    layers: Sequence[Recovered],
    speed: str,
    skipped: dict[int, float],
    given: bool,
    random: tuple[int, int],
) -> Iterator[Score]:
    """One rank correlation and its band, by a seed and so many shuffles; nothing where it does not exist."""
    (damage, scope), (seed, shuffles) = treatment, random
    known = [each for each in layers if getattr(each, speed) is not None and each.damage is not None]
    held = np.array([each.damage for each in known]) if given else None
    correlation = rank_correlation(
        [getattr(each, speed) for each in known],
        [skipped[each.layer] for each in known],
        given=held,
        seed=(seed, zlib.crc32(f"{damage}/{scope} {metric}".encode())),
        shuffles=shuffles,
    )
    if correlation is not None:
        value, low, high = correlation.value, correlation.low, correlation.high
        yield Score(RECOVERY, metric, value, low, high, correlation.p, condition=damage, arm=scope)
        yield Score(
            RECOVERY, metric, 0.0, correlation.null_low, correlation.null_high, condition=damage, arm=scope,
            against=SHUFFLED_LAYERS,
        )  # fmt: skip
