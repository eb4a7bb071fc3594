"""What a diagnosis costs, counted before it begins: the variants of the model that its parts run, and on how much text.

The counts are those of a model that allows everything; what a model does not allow is left out, and costs nothing.
"""

from __future__ import annotations

from layerwise.experiments.diagnosis.config import Diagnosis
from layerwise.measure.interventions.order import members as reordered
from layerwise.measure.interventions.perturbation_curves import ALPHAS, SIZES
from layerwise.measure.interventions.perturbations import STRATEGIES
from layerwise.measure.interventions.pruning import RANDOM_SETS
from layerwise.measure.recovery.recovery import DEFAULT_LAYERS, DEFAULT_TREATMENTS, TREATMENTS
from layerwise.measure.weights.predicted_weight_loss import joint_sets, neighbour_sets
from layerwise.plan.sublayer import SUBLAYERS as BRANCHES

INTERVENTIONS = 4
"""On a whole layer that may be any: skipped, its mean, a neighbour's copy, random weights."""

RECOVERY_SEEDS = 3


def describe_cost(config: Diagnosis, depth: int, tokens: int) -> str:
    """The cost in a sentence, for a model of `depth` layers and a text of `tokens` scored tokens."""
    counts = variants(config, depth, tokens)
    clauses = [f"{part} {count:,} on {scored:,} tokens" for part, (count, scored) in counts.items()]
    if "recovery" in config.parts:
        clauses.append(f"recovery {fine_tunings(config, depth):,} fine-tunings of {config.recovery_steps:,} steps")
    total = sum(count for count, _ in counts.values())
    return f"cost: about {total:,} variants of the model" + (f" ({'; '.join(clauses)})" if clauses else "")


def variants(config: Diagnosis, depth: int, tokens: int) -> dict[str, tuple[int, int]]:
    """By part, how many variants of the model it runs, and on how many scored tokens each.

    >>> variants(Diagnosis(model="demo", parts=("ablation", "manipulation")), 6, 5_000)
    {'ablation': (52, 5000), 'manipulation': (300, 1000)}
    """
    ablated = min(tokens, config.budget or tokens)
    short = min(tokens, config.curve_tokens)
    counts = {
        "predictability": (2 * (depth - 2 + len(joint_sets(depth)) + len(neighbour_sets(depth))), short),
        "ablation": (depth * (INTERVENTIONS + 2 * len(BRANCHES)) + depth - 2, ablated),
        "racing": (depth if "ablation" not in config.parts else 0, ablated),
        "order": (len(reordered(depth)), tokens),
        "manipulation": (
            depth * (len(STRATEGIES) * len(SIZES) + (1 + len(BRANCHES)) * len(ALPHAS)) + 2 * len(STRATEGIES),
            short,
        ),
        "pruning": (depth // 2 * RANDOM_SETS, short),
    }
    return {part: count for part, count in counts.items() if part in config.parts and count[0]}


def fine_tunings(config: Diagnosis, depth: int) -> int:
    """How many models the recovery trains for a few steps: damaged ones, and an undamaged twin for each of a kind."""
    layers = depth if config.all_layers else len(set(config.recovery_layers)) or min(depth, DEFAULT_LAYERS)
    treatments = TREATMENTS if config.all_layers else DEFAULT_TREATMENTS
    scopes = {treatment.partition("/")[2] for treatment in treatments}
    return RECOVERY_SEEDS * layers * (len(treatments) + len(scopes))
