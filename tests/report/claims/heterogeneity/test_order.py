"""Order by task, over many simulated models: fragile tasks, tasks that need their order, text that does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from layerwise.measure.contrasts.order import order_by_task
from layerwise.report.claims.painters import FASTER
from layerwise.results.rows import Loss, Score
from report.claims.truths import POWER, Truth, claim_of, concluded, ends_right, share

DEPTH = 8
BASELINE, ABSENT = "0-7", "0-2 6 7"
MOVED = {"reverse": ["0-2 5-3 6 7"], "random": ["0-2 4 3 5-7", "0-3 5 4 6 7"], "parallel": ["0-2 (3|4|5) 6 7"]}
TASKS = ("stdlib", "arithmetic", "copy")


def effects(
    run: int, text: tuple[float, float], reasoning: tuple[float, float], *, documents: int = 32, noise: float = 0.3,
    answers: tuple[str, ...] = ("arithmetic", "copy"),
) -> Iterator[Score]:  # fmt: skip
    """What another order and absence cost in nats per token, on text and on arithmetic; copying costs enormously."""
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


TRUTHS: dict[str, tuple[Truth, set[str], str | None]] = {
    "true": (
        partial(effects, text=(0.5, 0.5), reasoning=(2.0, 0.5)),
        {"contradicted", "explained by the null"},
        "supported",
    ),
    "false": (
        partial(effects, text=(2.0, 0.5), reasoning=(0.5, 0.5)),
        {"supported", "explained by the null"},
        "contradicted",
    ),
    "null": (
        partial(effects, text=(0.5, 0.5), reasoning=(2.0, 2.0), documents=200),
        {"supported", "contradicted"},
        "explained by the null",
    ),
    "null, little text": (
        partial(effects, text=(0.5, 0.5), reasoning=(2.0, 2.0), documents=16), {"supported", "contradicted"}, None,
    ),
    "underpowered": (
        partial(effects, text=(0.5, 0.5), reasoning=(0.8, 0.5), documents=9, noise=1.5),
        {"contradicted", "explained by the null"},
        None,
    ),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("kind", TRUTHS)
def test_order_by_task_is_judged_right(kind: str) -> None:
    truth, wrong, expected = TRUTHS[kind]
    ends_right("order_by_task", truth, DEPTH, wrong, expected)


@pytest.mark.nightly
def test_a_ratio_of_the_printed_resolution_is_found() -> None:
    rows = [list(effects(run, (0.5, 0.5), (1.0, 0.5))) for run in range(20)]
    less, ratio = (
        float(np.median([row.mde or 0.0 for found in rows for row in found if row.metric == metric]))
        for metric in ("order_less", "log_ratio")
    )
    cost = max(0.5 + less, 0.5 * float(np.exp(max(ratio, FASTER))))
    truth = partial(effects, text=(0.5, 0.5), reasoning=(cost, 0.5))
    assert share(concluded("order_by_task", truth, DEPTH), "supported") >= POWER


def test_copying_is_no_reasoning_and_tasks_are_named() -> None:
    claim = claim_of("order_by_task", effects(0, (0.5, 0.5), (2.0, 0.5)), DEPTH)
    assert claim.verdict == "supported"
    assert "reasoning (arithmetic)" in claim.figures
    assert "text (stdlib)" in claim.figures
    only_copying = effects(0, (0.5, 0.5), (2.0, 0.5), answers=("copy",))
    assert claim_of("order_by_task", only_copying, DEPTH).verdict == "not measured"
    assert claim_of("order_by_task", [], DEPTH).verdict == "not measured"
