"""The claim that the ways of running a model wrong rank as published, from least to most harmful."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.painters.costs import SWEEP, cost
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import counted, label, listed

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
    SWEEP,
)


def ranking(evidence: Evidence) -> Claim:
    """Do the strategies rank as published?"""
    rows = contrasts(evidence, RANKING.key, "tau", *PAIRS, *PAINTERS_RANKING)
    if rows is None:
        return RANKING.unmeasured()
    chain = [f"{label(name)} {cost(evidence, name)}" for name in sorted(PAINTERS_RANKING, key=rows.value)]
    positions = rows.positions(*PAIRS)
    counts = Counter(positions.values())
    as_published, reversed_ = counts["above"], counts["below"]
    rest = f", but for {counted(len(PAIRS) - as_published, 'pair')}" if as_published < len(PAIRS) else ""
    same = all(positions[step] == "within" for step in STEPS)
    return RANKING.decided(
        f"Mean costs in nats per token, least first: {listed(chain)}. Of 15 pairs {as_published} stand as published"
        f" and {reversed_} the other way round; τ with the published ranking is {rows.shown('tau')}{rows.tokens}.",
        rows.seen(*STEPS, unit="of the mean of both costs between any neighbours", together=1),
        (same, BY_NULL, "The strategies cost the same: there is nothing to rank."),
        (as_published >= FEWEST_AS_PUBLISHED, SUPPORTED, f"They rank as published{rest}."),
        (reversed_ >= FEWEST_REVERSED, CONTRADICTED, "More than two of 15 pairs stand the other way round."),
        otherwise=rows.needed(*STEPS),
    )
