"""The claims on core layers and anti-layers over many simulated models."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from layerwise.measure.contrasts.layers import contrast_core as core_rows
from layerwise.measure.interventions.ablation import skip_keys
from layerwise.measure.stats.verdicts import compute_verdicts
from layerwise.plan import Plan
from layerwise.results.rows import Loss, Score
from measure.simulated import SimulatedModel
from page.claims import truths
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED

DEPTH = 30
RANGE = range(8, 12)
INTERVENTIONS = ("skip", "average", "random")


def effects(inside: float, outside: float, first: float = 0.0) -> list[float]:
    effects = [inside if layer in RANGE else outside for layer in range(DEPTH)]
    effects[0] += first
    return effects


def damaged(run: int, *, noise: float = 0.05, documents: int = 24, **of: Sequence[float]) -> Iterator[Score]:
    baseline = str(Plan.identity(DEPTH))
    losses: list[Loss] = []
    keys = {name: {layer: f"{name} {layer}" for layer in range(DEPTH)} for name in of}
    generator = np.random.default_rng([run, 11])
    tokens = generator.integers(20, 200, documents)
    own = 3.0 * tokens
    # The effects of one document vary together.
    shared = generator.standard_t(5, documents) * noise
    for document in range(documents):
        losses.append(Loss(baseline, "text", f"{document:03}", 0, float(own[document]), int(tokens[document]), 0))
    for name, values in of.items():
        drawn = shared + generator.standard_t(5, (DEPTH, documents)) * noise
        nll = own + (np.asarray(values)[:, None] + drawn) * tokens
        losses += [
            Loss(keys[name][layer], "text", f"{document:03}", 0, float(nll[layer, document]), int(tokens[document]), 0)
            for layer in range(DEPTH)
            for document in range(documents)
        ]
    skip, average, random = (keys.get(name, {}) for name in INTERVENTIONS)
    yield from core_rows(losses, baseline, skip, average, random, margin=0.01, seed=run)


# Twenty times the rest below a dominant first layer is a core; one per cent above it is not "far more".
CORE = partial(damaged, skip=effects(1.0, 0.05, first=5.0))
ALIKE = partial(damaged, skip=effects(0.505, 0.5))
# Random weights show the core too.
DAMAGE = partial(damaged, skip=effects(0.1, 0.1), average=effects(2.0, 0.1), random=effects(2.5, 2.5))
test_core_layers_are_judged_right = truths.make_simulated_test(
    {"core": {SUPPORTED: (CORE,), CONTRADICTED: (ALIKE,), NULL: (DAMAGE,)}}, depth=DEPTH, together=True, nightly=True
)


def test_one_core_one_dominant_layer_and_no_core() -> None:
    findings = [truths.judge_rows("core", truth(0), DEPTH) for truth in (CORE, ALIKE, DAMAGE)]
    assert [claim.verdict for claim in findings] == ["supported", "contradicted", "no better than the null"]
    assert "8–11" in findings[0].answer
    assert truths.judge_rows("core", damaged(0, skip=effects(0.1, 0.1, first=9.0)), DEPTH).verdict == "contradicted"
    lone = effects(0.1, 0.1)
    lone[9] = 5.0
    assert truths.judge_rows("core", damaged(0, skip=lone), DEPTH).verdict == "contradicted"
    assert truths.judge_rows("core", [], DEPTH).verdict == "not measured"


def judged(run: int, values: Sequence[float], noise: float = 0.013, documents: int = 64) -> Iterator[Score]:
    model = SimulatedModel(values, documents=documents, noise=noise, seed=run)
    for score in compute_verdicts(model.whole(), model.baseline, skip_keys(model.depth), seed=run):
        yield score
        reach = ((score.high or 0.0) - (score.low or 0.0)) / 2 * 1.96 / 2.9
        yield Score(
            "ablation",
            "skip",
            score.value,
            score.value - reach,
            score.value + reach,
            layer=score.layer,
            tokens=score.tokens,
        )


def harming(run: int, harm: float) -> list[float]:
    values = np.random.default_rng([run, 12]).uniform(0.0, 0.004, 12).tolist()
    values[run % 12] = -harm
    return values


test_anti_layers_are_judged_right = truths.make_simulated_test(
    {
        "anti_layers": {
            SUPPORTED: (lambda run: judged(run, harming(run, 0.02)),),
            CONTRADICTED: (lambda run: judged(run, [0.3] * 12),),
        }
    },
    together=True,
    nightly=True,
)
