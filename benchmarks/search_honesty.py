"""Measure the coverage of the reported interval in 100 simulated searches, each judged on an unused split.

    python benchmarks/search_honesty.py                 # about a minute

Each search is the default one on a simulated objective: 16 layers, 6 of which are removed, with single and pair
effects, and noise per document; 48 documents to search on, and as many to report on. The plan is the one that
the search returns. For four intervals it counts how often they contain the loss on another 48 documents:

    again     that of the report for another text of as many documents (`layerwise.search.confirm`)
    report    the bootstrap interval of the report, asked for the true value
    naive     the loss on the text that chose the plan, with its bootstrap interval
    wide      the same, with an interval as wide as `again`
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

from layerwise.plan import Plan  # noqa: E402
from layerwise.results.rows import Loss, Score  # noqa: E402
from layerwise.search.confirm import compute_loss_changes  # noqa: E402
from layerwise.search.greedy import Space, greedy, rank_plans  # noqa: E402
from search.planted_objective import PlantedObjective  # noqa: E402

DEPTH, DROPPED = 16, 6


def rows_of(objective: PlantedObjective, plan: Plan) -> list[Loss]:
    """Draw the losses of the identity plan and of a plan on the documents of one text."""
    whole = Plan.identity(DEPTH)
    return [
        Loss(str(each), "text", f"d{number}", 0, float(nll), 100, 0)
        for each in (whole, plan)
        for number, nll in enumerate(objective.losses(each))
    ]


def score_of(scores: list[Score], metric: str) -> Score:
    return next(score for score in scores if score.metric == metric)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--documents", type=int, default=48)
    parser.add_argument("--noise", type=float, default=1.0)
    options = parser.parse_args()
    whole, space = Plan.identity(DEPTH), Space(DEPTH, ("drop",), lambda plan: float(len(plan.steps())), DEPTH - DROPPED)
    held = {"again": 0, "report": 0, "naive": 0, "wide": 0}
    curses = []
    for seed in range(options.searches):
        searched, reported, fresh = (
            PlantedObjective(
                DEPTH, coupling=0.3, noise=options.noise, seed=seed, documents=options.documents, text=text
            )
            for text in range(3)
        )
        plan = next(iter(rank_plans(greedy(searched, space, width=2), space)))
        report = compute_loss_changes(rows_of(reported, plan), whole, "report", seed=seed)
        search = compute_loss_changes(rows_of(searched, plan), whole, "search", seed=seed)
        another = score_of(compute_loss_changes(rows_of(fresh, plan), whole, "fresh", seed=seed), "delta_nll").value
        asked = {
            "again": (score_of(report, "again"), another),
            "report": (score_of(report, "delta_nll"), reported.true(plan)),
            "naive": (score_of(search, "delta_nll"), another),
            "wide": (score_of(search, "again"), another),
        }
        for name, (score, value) in asked.items():
            held[name] += (score.low or 0.0) <= value <= (score.high or 0.0)
        curses.append(another - score_of(search, "delta_nll").value)
    total = options.searches
    print(f"the report's interval for another text held it in {held['again']} of {total} searches")
    print(f"the report's bootstrap interval held the true value in {held['report']} of {total}")
    print(f"the search's own loss, with its interval, held another text in {held['naive']} of {total}")
    print(f"the same with an interval as wide as that of the report: {held['wide']} of {total}")
    print(f"the winner's curse: another text says {np.mean(curses):+.4f} nats more than the search did, on the mean")


if __name__ == "__main__":
    main()
