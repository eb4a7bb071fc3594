"""Is a cheap score as good as skipping every layer? Measure both, and how well they agree.

    python examples/04_which_layers_matter.py [MODEL]       a hub id, a directory, or the demo model by default

The command `layerwise diagnose` computes this and more, with controls, and writes a report. This example calls
three of its parts as functions of `layerwise.measure`.
"""

from __future__ import annotations

import sys

import layerwise
from layerwise.measure.gradients.proxies import proxies
from layerwise.measure.interventions.ablation import ablation
from layerwise.measure.interventions.racing import racing
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.stats.correlation import rank_correlation

VERDICTS = {
    "matters": "matters",
    "harmful": "harmful",
    "no_effect": "no effect above {:.2f} nats",
    "inconclusive": "inconclusive (detectable: {:.2f} nats)",
}


def main(model: str = "demo") -> None:
    """Print the measured and the first-order effect of skipping each layer, and their rank correlation."""
    stack = layerwise.load(model)
    data = tokenize(stack, layerwise.demo_corpus(texts=12, characters=300, questions=8))

    # Race the layers: once the verdict of a layer is clear, no more text is read for it.
    race = racing(stack, data, beginning=64)
    share = next(score.value for score in race if score.metric == "share")
    verdicts = {score.layer: VERDICTS[score.metric].format(score.mde) for score in race if score.metric in VERDICTS}
    print(f"verdicts for {share:.0%} of the layer evaluations of a full sweep")

    # Skip every layer on every document, and predict that from one forward and one backward pass.
    skipped = ablation(stack, data)
    cheap = proxies(stack, data)
    whole = [score for score in skipped if (score.metric, score.task, score.against) == ("skip", "all", None)]
    measured = {score.layer: score for score in whole if score.part is None}
    first_order = [score for score in cheap if score.metric == "gate_gradient" and score.against is None]
    gradient = {score.layer: score for score in first_order if score.part is None}
    print("layer   skipped: nats/token            to first order   verdict")
    for layer in range(stack.depth):
        effect = measured[layer]
        interval = f"{effect.value:+.3f} [{effect.low:+.3f}, {effect.high:+.3f}]"
        print(f"{layer:5}   {interval:28} {gradient[layer].value:+16.3f}   {verdicts[layer]}")

    found = rank_correlation(*([each[layer].value for layer in range(stack.depth)] for each in (measured, gradient)))
    if found is not None:
        print(f"rank correlation {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]")


if __name__ == "__main__":
    main(*sys.argv[1:])
