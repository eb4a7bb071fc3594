"""The claim that the ways of running a model wrong rank as published, from least to most harmful."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.report.claims.absence import SWEEP
from layerwise.report.claims.claim import Claim, Published
from layerwise.report.claims.contrasts import contrasts, cost
from layerwise.report.data import Evidence
from layerwise.report.wording import counted, label, listed

PAIRS = tuple(f"{harsher}:{milder}" for milder, harsher in combinations(PAINTERS_RANKING, 2))
STEPS = tuple(f"{harsher}:{milder}" for milder, harsher in pairwise(PAINTERS_RANKING))
FEWEST_AS_PUBLISHED = 13
FEWEST_REVERSED = 1 + len(PAIRS) - FEWEST_AS_PUBLISHED

RANKING = Published(
    "ranking",
    "Ranking of the strategies",
    "From least to most harmful: looped parallel, random order, reverse, parallel, skip, middle repeat.",
    "arXiv 2407.09298, section 3.8, figure 11",
    "Six strategies make 15 pairs. Costs are averaged over the published windows of more than one layer, and each pair"
    " has an interval at 99 %; less than 5 % of the mean of two costs is no difference. Supported: 13 pairs or more are"
    " each shown to stand as published, which a ranking by chance does in 3 of 100 cases. Contradicted: 3 pairs or more"
    " are each shown to stand the other way round. Explained by the null: all neighbours in the published ranking are"
    " shown to cost the same, so that any order is one of noise. Kendall's τ of the two rankings is given beside it.",
)


def ranking(evidence: Evidence) -> Claim:
    """Do the strategies rank as published?

    - supported: 13 of 15 pairs or more stand as published, each by its interval.
    - explained by the null: every difference between neighbours lies within the margin: there is nothing to rank.
    - contradicted: 3 pairs or more stand the other way round, each by its interval.
    - not resolvable: anything else.
    """
    found = contrasts(evidence, RANKING.key, "tau", *PAIRS, *PAINTERS_RANKING)
    if found is None:
        return RANKING.unmeasured(SWEEP)
    chain = [f"{label(name)} {cost(evidence, name)}" for name in sorted(PAINTERS_RANKING, key=found.value)]
    places = found.places(*PAIRS)
    counts = Counter(places.values())
    figures = (
        f"Mean costs in nats per token, least first: {listed(chain)}. Of 15 pairs {counts['above']} stand as published"
        f" and {counts['below']} the other way round; τ with the published ranking is {found.shown('tau')}"
        f"{found.tokens}."
    )
    power = found.seen(*STEPS, unit="of the mean of both costs between any neighbours", together=1)
    if all(places[step] == "within" for step in STEPS):
        why = "The strategies cost the same: there is nothing to rank."
        return RANKING.claim("explained by the null", figures, why, power)
    if counts["above"] >= FEWEST_AS_PUBLISHED:
        rest = len(PAIRS) - counts["above"]
        untold = f", but for {counted(rest, 'pair')}" if rest else ""
        why = f"They rank as published{untold}."
        return RANKING.claim("supported", figures, why, power)
    if counts["below"] >= FEWEST_REVERSED:
        return RANKING.claim("contradicted", figures, "More than two of 15 pairs stand the other way round.", power)
    return RANKING.claim("not resolvable", figures, found.needed(*STEPS), power)
