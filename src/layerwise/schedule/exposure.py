"""How much of a training a layer learns in: steps, and with the text's length passes over it."""

from __future__ import annotations

from layerwise.schedule.layer_text import write_layers
from layerwise.schedule.phase import Phase
from layerwise.schedule.schedule import GrowthSchedule


def learned_steps(schedule: GrowthSchedule, steps: int) -> tuple[float, ...]:
    """In how many steps of a training of so many every layer learns; a mean where chance decides.

    >>> half = GrowthSchedule("half", 2, (Phase("a", 0.5, (0, 1)), Phase("b", 0.5, (1,))))
    >>> learned_steps(half, steps=10)
    (5.0, 10.0)
    """
    bounds = schedule.bounds(steps)
    shares = [_learning_shares(phase, schedule.depth) for phase in schedule.phases]
    return tuple(
        sum((end - first) * share[layer] for (first, end), share in zip(bounds, shares, strict=True))
        for layer in range(schedule.depth)
    )


def layer_epochs(schedule: GrowthSchedule, steps: int, epochs: float) -> str:
    """In words, how often each layer reads the text while it learns, in a training of `steps` that reads it `epochs`
    times; layers that do so alike together.

    >>> half = GrowthSchedule("half", 3, (Phase("a", 0.5, (0, 1)), Phase("b", 0.5, (0, 1, 2))))
    >>> layer_epochs(half, steps=10, epochs=2.0)
    'while it learns: layer 2 1.00 times, layers 0, 1 2.00 times'
    """
    by_epochs: dict[str, list[int]] = {}
    learned = learned_steps(schedule, steps)
    for layer in sorted(range(schedule.depth), key=learned.__getitem__):
        by_epochs.setdefault(f"{epochs * learned[layer] / steps:.2f}", []).append(layer)
    named = (
        f"layer{'s' * (len(layers) > 1)} {write_layers(tuple(sorted(layers))).replace(' ', ', ')} {times} times"
        for times, layers in by_epochs.items()
    )
    return f"while it learns: {', '.join(named)}"


def _learning_shares(phase: Phase, depth: int) -> tuple[float, ...]:
    """The share of a phase's steps in which every layer learns."""
    kept = {layer: 1 - chance for layer, chance in zip(phase.running(depth), phase.dropped(0.5, depth), strict=True)}
    drawn = 1.0 if phase.sample is None or not phase.trains else phase.sample / len(phase.trains)
    return tuple(drawn * kept[layer] if layer in phase.trains else 0.0 for layer in range(depth))
