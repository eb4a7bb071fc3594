"""The claims on similar middle layers and on order in reasoning, over many simulated models."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from layerwise.measure.activations.block_influence import RANDOM_MODELS, log_ratio, middle_rows
from layerwise.measure.contrasts.contrast import Part
from layerwise.results.rows import Loss, Score
from layerwise.studies.sweep.order_contrasts import order_by_task, order_of_sweep
from page.claims import truths
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED
from page.synthetic import plan_records

BASELINE, ABSENT = "0-7", "0-2 6 7"
MOVED = {"reverse": ["0-2 5-3 6 7"], "random": ["0-2 4 3 5-7", "0-3 5 4 6 7"], "parallel": ["0-2 (3|4|5) 6 7"]}
TASKS = ("stdlib", "arithmetic", "copy")


def effects(
    run: int,
    text: tuple[float, float],
    reasoning: tuple[float, float],
    *,
    documents: int = 32,
    noise: float = 0.3,
    answers: tuple[str, ...] = ("arithmetic", "copy"),
) -> Iterator[Score]:
    generator = np.random.default_rng([run, 41])
    costs = {"stdlib": text, "arithmetic": reasoning, "copy": (50.0, 1.0)}
    losses = []
    for task in TASKS:
        moved, absent = costs[task]
        for document in range(documents):
            tokens = int(generator.integers(5, 60))
            shared = generator.standard_t(4) * noise
            values = {BASELINE: 0.0, ABSENT: absent * (1 + shared) + generator.normal() * noise * absent}
            for plan in (plan for plans in MOVED.values() for plan in plans):
                values[plan] = moved * (1 + shared) + generator.normal() * noise * moved
            for plan, value in values.items():
                losses.append(Loss(plan, task, f"{document:03}", 0, (3.0 + value) * tokens, tokens, 0))
    yield from order_by_task(losses, BASELINE, MOVED, ABSENT, answers, seed=run)


def turned(
    run: int, ratio: float, untrained: float, *, documents: int = 40, noise: float = 0.3, spread: float = 0.05
) -> Iterator[Score]:
    generator = np.random.default_rng([run, 31])
    layers = np.full(12, 0.2)
    layers[3:9] *= ratio
    tokens = generator.integers(20, 200, documents).astype(float)
    # The effects of one document are correlated over layers.
    drawn = np.exp(noise * (generator.normal(size=documents) + generator.normal(size=(12, documents))))
    part = Part(layers[:, None] * drawn * tokens, tokens, documents, int(tokens.sum()))
    twins = []
    for _ in range(RANDOM_MODELS):
        shape = np.ones(12)
        shape[3:9] *= untrained * np.exp(generator.normal() * spread)
        twins.append(float(log_ratio(shape)))
    yield from middle_rows(part, twins, seed=run)


ordered = partial(effects, text=(0.5, 0.5))
test_each_world_is_told = truths.simulated(
    {
        "middle": {
            # Four times less than at the ends; in an untrained model as much as there.
            SUPPORTED: (partial(turned, ratio=0.25, untrained=1.0),),
            CONTRADICTED: (partial(turned, ratio=1.5, untrained=1.0), partial(turned, ratio=1.0, untrained=1.0)),
            NULL: (partial(turned, ratio=0.4, untrained=0.4),),
        },
        "order_by_task": {
            SUPPORTED: (partial(ordered, reasoning=(2.0, 0.5)),),
            CONTRADICTED: (partial(effects, text=(2.0, 0.5), reasoning=(0.5, 0.5)),),
            NULL: (partial(ordered, reasoning=(2.0, 2.0), documents=200),),
        },
    },
    together=True,
    nightly=True,
)


def test_without_twins_nothing_is_decided_and_few_documents_have_no_interval() -> None:
    alone = [score for score in turned(0, 0.25, 1.0) if score.metric == "log_ratio"]
    assert truths.claim_of("middle", alone, 12).verdict == "inconclusive"
    assert all(score.low is None for score in turned(0, 0.25, 1.0, documents=5))


def test_copying_is_no_reasoning_and_tasks_are_named() -> None:
    claim = truths.claim_of("order_by_task", ordered(0, reasoning=(2.0, 0.5)), 8)
    assert claim.verdict == SUPPORTED
    assert "Reasoning is arithmetic, text is stdlib;" in claim.answer
    only_copying = ordered(0, reasoning=(2.0, 0.5), answers=("copy",))
    assert truths.claim_of("order_by_task", only_copying, 8).verdict == "not measured"


def test_a_sweep_compares_the_window_nearest_to_half_of_the_depth() -> None:
    """Windows of 8 layers are 7, 5, 3 and 1 wide; of the equally near 3 and 5, the narrower one counts."""
    records = plan_records(8, ("painters",))
    own = {name: [row.plan for row in records if (row.strategy, row.affected) == (name, 3)] for name in MOVED}
    (absent,) = (row.plan for row in records if (row.strategy, row.affected) == ("skip", 3))
    known = {BASELINE, *own["reverse"]}
    own["random"] = [plan for plan in dict.fromkeys(own["random"]) if plan not in known]
    draw = np.random.default_rng(0)
    losses = [
        Loss(plan, task, f"{document:02}", 0, float(draw.gamma(9.0)), 3, 0)
        for plan in dict.fromkeys([BASELINE, *(row.plan for row in records)])
        for task in TASKS
        for document in range(9)
    ]
    found = order_of_sweep(losses, records, 8, ("arithmetic", "copy"), seed=3)
    wanted = order_by_task(losses, BASELINE, own, absent, ("arithmetic", "copy"), seed=3)
    assert len(own["random"]) > 1
    assert {row.metric: row.value for row in found} == pytest.approx({row.metric: row.value for row in wanted})
    assert len(found) == 2
    assert order_of_sweep([row for row in losses if row.plan != BASELINE], records, 8, ("arithmetic",)) == []
