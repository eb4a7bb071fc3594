"""Mixed spaces and several objectives: NSGA-II of optuna, a generation at a time (extra `search`).

Every layer has a choice of its own: it runs, it does not, half of it runs, it runs twice, beside the next, averaged
with the next. What is minimised is the loss and the price together, so that the result is a front. Optuna proposes a
whole generation (`ask`), all of it is one graph of the engine, and optuna is given the results (`tell`): let it drive
one plan at a time, and nothing would be shared. The first generation holds the sets that one score chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from layerwise.errors import OptionError
from layerwise.plan import Plan
from layerwise.plan.plan import Group, Reduction, Stage, Visit
from layerwise.search.budget import front
from layerwise.search.greedy import SearchStep, Space
from layerwise.search.moves import AVERAGE_OF_TWO, Move, tidied
from layerwise.search.rungs import Evaluator, Round, mean_losses

POPULATION = 24
GENERATIONS = 20

CHOICES: Mapping[Move, tuple[str, ...]] = {
    "drop": ("none",),
    "halves": ("attn", "mlp"),
    "repeat": ("twice",),
    "damp": ("damped",),
    "parallel": ("beside",),
    "merge": ("averaged",),
    "reorder": ("after",),
}
"""What a move lets a layer do, besides to run: the last three take the next layer with them."""

_STAGES: Mapping[str, Callable[[int], tuple[Stage, ...]]] = {
    "whole": lambda layer: (Visit(layer),),
    "none": lambda layer: (),
    "attn": lambda layer: (Visit(layer, sublayer="attn"),),
    "mlp": lambda layer: (Visit(layer, sublayer="mlp"),),
    "twice": lambda layer: (Visit(layer), Visit(layer)),
    "damped": lambda layer: (Group((Plan.of([layer]),), Reduction("gain", 0.5), 2),),
    "averaged": lambda layer: (Visit(layer, source=AVERAGE_OF_TWO),),
    "beside": lambda layer: (Group((Plan.of([layer]), Plan.of([layer + 1])), Reduction("sum")),),
    "after": lambda layer: (Visit(layer + 1), Visit(layer)),
}


def require_optuna() -> Any:
    """The module optuna. Raises `OptionError` where it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise OptionError(
            "--method optuna needs optuna, which is not installed: pip install 'layerwise[search]', or leave the "
            "option out: greedy needs nothing"
        ) from error
    return optuna


def nsga(
    evaluator: Evaluator,
    space: Space,
    starts: Sequence[Plan],
    *,
    seed: int = 0,
    population: int = POPULATION,
    generations: int = GENERATIONS,
) -> Iterator[SearchStep]:
    """The generations, each yielded when it is done; the last step reads the best within the limit on all of the text.

    All but the last rung judge a generation. Raises `OptionError` without optuna.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = ("whole", *(choice for move in space.moves for choice in CHOICES[move]))
    distributions = {
        f"{layer:04d}": optuna.distributions.CategoricalDistribution(names) for layer in range(space.depth)
    }
    sampler = optuna.samplers.NSGAIISampler(population_size=population, seed=seed)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    for plan in starts:
        choices = {name: "whole" if int(name) in plan.layers() else "none" for name in distributions}
        if set(choices.values()) <= set(names):  # without the move `drop` no layer can be left out
            study.enqueue_trial(choices)
    rungs = max(1, len(evaluator.tokens) - 1)
    means: dict[Plan, float] = {}
    for _ in range(generations):
        trials = [study.ask(distributions) for _ in range(population)]
        plans = [plan_of([trial.params[name] for name in distributions]) for trial in trials]
        fresh = list(dict.fromkeys(plan for plan in plans if plan is not None))
        means |= mean_losses(evaluator, fresh, space.whole, rungs) if fresh else {}
        for trial, proposed in zip(trials, plans, strict=True):
            if proposed is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, [means[proposed], space.price(proposed)])
        yield SearchStep("generation", Round(dict(sorted(means.items(), key=itemgetter(1))[:1]), len(fresh), 0, 0))
    allowed = sorted(((plan, mean) for plan, mean in means.items() if space.allows(plan)), key=itemgetter(1))
    finalists = [*(plan for plan, _ in allowed[:population]), *(point.plan for point in front(means, space.price))]
    if not allowed:
        raise OptionError(f"no plan within {space.limit:g} was drawn: give a larger budget, or more moves")
    final = mean_losses(evaluator, list(dict.fromkeys(finalists)), space.whole)
    best = sorted(((plan, mean) for plan, mean in final.items() if space.allows(plan)), key=itemgetter(1))
    yield SearchStep("final", Round(dict(best), len(final), 0, 0))


def plan_of(choices: Sequence[str]) -> Plan | None:
    """The plan in which layer l does what `choices[l]` says; `None` where no layer is left.

    >>> plan_of(["whole", "none", "attn", "twice", "averaged", "whole", "beside", "whole"])
    Plan('0 2.attn 3 3 mean2:4 (6|7):sum')
    """
    made: list[Stage] = []
    layer = 0
    while layer < len(choices):
        takes_next = choices[layer] in ("beside", "averaged", "after")
        choice = "whole" if takes_next and layer + 1 == len(choices) else choices[layer]
        made += _STAGES[choice](layer)
        layer += 2 if takes_next else 1
    return tidied(made) if made else None
