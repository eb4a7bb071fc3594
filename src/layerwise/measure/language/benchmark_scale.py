"""The Painters' scale for benchmarks: 0 is what guessing scores, 1 what the model as trained scores (Sun et al. 2024,
arXiv 2407.09298, section 2).

What guessing scores is known for the five benchmarks of the paper; of any other that offers choices it is the mean of
one over their number, and of one whose answer is written 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from layerwise.results.rows import Score
from layerwise.results.vocabulary import NORMALISED

CHANCE: Mapping[str, float] = MappingProxyType(
    {
        # Four options for nearly every question (Clark et al. 2018).
        "arc_challenge": 0.25,
        # Four endings (Zellers et al. 2019).
        "hellaswag": 0.25,
        # Two options (Sakaguchi et al. 2020).
        "winogrande": 0.5,
        # The last word of a passage (Paperno et al. 2016) and a number written out (Cobbe et al. 2021) are not guessed.
        "lambada_openai": 0.0,
        "gsm8k": 0.0,
    }
)
"""The Painters' benchmarks, and the accuracy of guessing on each."""

PROPORTIONS = ("acc", "acc_norm", "exact_match")
"""Metrics that are a share of right answers, and so have a chance level."""


def chance_of(name: str, task: Any) -> float:
    """What guessing scores on lm-eval's `task` called `name`, whose requests are built."""
    if name in CHANCE:
        return CHANCE[name]
    if task.OUTPUT_TYPE != "multiple_choice":
        return 0.0
    # With mutual information each choice is asked about twice, with its question and without.
    twice = "acc_mutual_info" in task.aggregation()
    choices = Counter(instance.doc_id for instance in task.instances).values()
    return sum((2 if twice else 1) / count for count in choices) / len(choices)


def normalised(scores: Iterable[Score], full: str, chance: Mapping[str, float] = CHANCE) -> list[Score]:
    """The rows of `scores` on the Painters' scale, 0 for chance and 1 for the full model: condition `normalised`.

        (score - chance) / (score of the full model - chance)

    `full` is the plan of the full model, `chance` the accuracy of guessing by benchmark. Only shares of right answers
    of benchmarks in `chance` have such a row, and only where the full model's interval lies above chance: a model that
    guesses has nothing to lose. Intervals are scaled with the score; the full model's own error is not in them.
    """
    rows = [score for score in scores if score.task in chance and score.metric.split("/")[0] in PROPORTIONS]
    best = {(score.task, score.metric): score for score in rows if score.plan == full}
    scaled = []
    for score in rows:
        top, floor = best.get((score.task, score.metric)), chance[score.task]
        if top is None or (top.value if top.low is None else top.low) <= floor:
            continue
        scale = top.value - floor
        scaled.append(
            replace(
                score,
                condition=NORMALISED,
                value=(score.value - floor) / scale,
                low=None if score.low is None else (score.low - floor) / scale,
                high=None if score.high is None else (score.high - floor) / scale,
            )
        )
    return scaled
