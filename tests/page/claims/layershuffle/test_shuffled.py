"""The claims on random order over many simulated runs of every truth."""

from collections.abc import Iterable

from layerwise.measure.contrasts.shuffled import contrast_orders
from layerwise.results.rows import Score
from page.claims import truths
from page.claims.trainings import Accuracies, World
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED, Truth

CHANCE = 0.1
WHOLE = {"sequential": 0.8, "random": 0.12}
LEFT_OUT = range(1, 7)


PLAIN = World()


def truth(variants: Accuracies, world: World = PLAIN) -> Truth:
    def rows(run: int) -> Iterable[Score]:
        return contrast_orders(world.surveys(run, variants), chance=CHANCE, batch=world.batch)

    return rows


def trained(
    shuffled_: float = 0.62, baseline: float = 0.12, sequential: float | None = None, **more: float
) -> Accuracies:
    own = {
        "baseline": baseline,
        "layershuffle": shuffled_,
        **({} if sequential is None else {"sequential": sequential}),
    }
    own |= {name.replace("_", "-"): value for name, value in more.items()}
    return {
        variant: {"sequential": 0.8 if variant != "layershuffle" else 0.75, "random": of} for variant, of in own.items()
    }


def declining(slope: float, other: float) -> Accuracies:
    def tasks(top: float, lost: float) -> dict[str, float]:
        kept = {f"kept {12 - r} even sequential": CHANCE + (top - CHANCE) * (1 - lost * r / 6) for r in LEFT_OUT}
        return {"sequential": top, **kept}

    return {"layershuffle": tasks(0.75, slope), "baseline": tasks(0.8, other)}


SKEWED = World(skewed=True, spread=0.02)
EIGHT = World(seeds=8, swing=0.03)

test_what_is_true_is_found = truths.make_simulated_test(
    {
        "trained_order": {SUPPORTED: (truth(trained()), truth(trained(sequential=0.13), SKEWED))},
        "collapse": {SUPPORTED: (truth(trained(baseline=0.105)), truth(trained(baseline=0.11), EIGHT))},
        "pruning": {SUPPORTED: (truth(declining(0.3, 0.8)), truth(declining(0.3, 0.9), SKEWED))},
    },
    together=True,
)
test_so_is_what_is_false_or_of_the_null_or_near_its_bar = truths.make_simulated_test(
    {
        "trained_order": {
            CONTRADICTED: (truth(trained(0.4)), truth(trained(0.6, 0.75))),  # training in order keeps more
            NULL: (truth(trained(0.7, 0.7), World(8)), truth(trained(0.7, 0.2, sequential=0.7), World(8))),
        },
        "collapse": {CONTRADICTED: (truth(trained(baseline=0.3)), truth(trained(baseline=0.35), SKEWED))},
        "pruning": {CONTRADICTED: (truth(declining(0.7, 0.2)),), NULL: (truth(declining(0.4, 0.4), World(8)),)},
    },
    together=True,
    nightly=True,
)
