"""Mixed spaces and several objectives: NSGA-II of optuna, a generation at a time (extra `search`).

Every layer has a choice of its own: it runs, it does not, half of it runs, it runs twice, beside the next, averaged
with the next. What is minimised is the loss and the price together, so that the result is a front. Optuna proposes a
whole generation (`ask`), all of it is one graph of the engine, and optuna is given the results (`tell`): let it drive
one plan at a time, and nothing would be shared. The first generation holds the sets that one score chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.errors import OptionError
from layerwise.measure.stats.statistics import ratio
from layerwise.plan import Plan
from layerwise.plan.plan import Group, Reduction, Stage, Visit
from layerwise.search.greedy import SearchStep, Space
from layerwise.search.moves import AVERAGE_OF_TWO, Move, tidied
from layerwise.search.rungs import Evaluator, Round

POPULATION = 24
GENERATIONS = 20

CHOICES: Mapping[Move, tuple[str, ...]] = {
    "drop": ("none",), "halves": ("attn", "mlp"), "repeat": ("twice",), "parallel": ("beside",), "merge": ("averaged",),
    "reorder": ("after",),
}  # fmt: skip
"""What a move lets a layer do, besides to run: the last three take the next layer with them."""


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
    rungs = range(max(1, len(evaluator.tokens) - 1))
    means: dict[Plan, float] = {}
    for _ in range(generations):
        trials = [study.ask(distributions) for _ in range(population)]
        plans = [plan_of([trial.params[name] for name in distributions]) for trial in trials]
        fresh = list(dict.fromkeys(plan for plan in plans if plan is not None))
        means |= _means(evaluator, fresh, rungs, space.whole)
        for trial, proposed in zip(trials, plans, strict=True):
            if proposed is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, [means[proposed], space.price(proposed)])
        yield SearchStep("generation", Round(dict(sorted(means.items(), key=_value)[:1]), len(fresh), 0, 0))
    allowed = sorted(((plan, mean) for plan, mean in means.items() if space.allows(plan)), key=_value)
    front = [plan for plan, _ in allowed[:population]] + _nondominated(means, space)
    if not allowed:
        raise OptionError(f"no plan within {space.limit:g} was drawn: give a larger budget, or more moves")
    final = _means(evaluator, list(dict.fromkeys(front)), range(len(evaluator.tokens)), space.whole)
    best = sorted(((plan, mean) for plan, mean in final.items() if space.allows(plan)), key=_value)
    yield SearchStep("final", Round(dict(best), len(final), 0, 0))


def plan_of(choices: Sequence[str]) -> Plan | None:
    """The plan in which layer l does what `choices[l]` says; `None` where no layer is left.

    >>> plan_of(["whole", "none", "attn", "twice", "averaged", "whole", "beside", "whole"])
    Plan('0 2.attn 3 3 mean2:4 (6|7):sum')
    """
    made: list[Stage] = []
    layer = 0
    while layer < len(choices):
        choice, last = choices[layer], layer + 1 == len(choices)
        if choice in ("beside", "averaged", "after") and last:
            choice = "whole"
        match choice:
            case "whole":
                made.append(Visit(layer))
            case "attn":
                made.append(Visit(layer, sublayer="attn"))
            case "mlp":
                made.append(Visit(layer, sublayer="mlp"))
            case "twice":
                made += [Visit(layer), Visit(layer)]
            case "averaged":
                made.append(Visit(layer, source=AVERAGE_OF_TWO))
            case "beside":
                made.append(Group((Plan.of([layer]), Plan.of([layer + 1])), Reduction("sum")))
            case "after":
                made += [Visit(layer + 1), Visit(layer)]
        layer += 2 if choice in ("beside", "averaged", "after") else 1
    return tidied(made) if made else None


def _means(evaluator: Evaluator, plans: Sequence[Plan], rungs: range, parent: Plan) -> dict[Plan, float]:
    if not plans:
        return {}
    values = np.concatenate([evaluator.evaluate(plans, rung, parent) for rung in rungs], axis=1)
    tokens = np.concatenate([evaluator.tokens[rung] for rung in rungs])
    return dict(zip(plans, ratio(values, tokens).tolist(), strict=True))


def _nondominated(means: Mapping[Plan, float], space: Space) -> list[Plan]:
    from layerwise.search.budget import front

    return [point.plan for point in front(means, space.price)]


def _value(item: tuple[Plan, float]) -> float:
    return item[1]
