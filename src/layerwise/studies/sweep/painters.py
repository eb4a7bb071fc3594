"""The questions of "Transformer Layers as Painters", each answered from the rows of a run."""

from __future__ import annotations

from layerwise.page.data import ReportData
from layerwise.page.evidence import describe_undecided, read_estimates
from layerwise.page.finding import Finding, Paper, Published, Verdict, format_estimate

PAPER = Paper("Transformer Layers as Painters", "Sun et al., AAAI 2025, arXiv 2407.09298")

MIN_COSINE, MIN_SAVED, MIN_NATS = 0.02, 0.25, 0.01
"""The smallest effects that count: of cosine, of a layer's share in a cost, and in nats per token."""


def judge_middle_layers_share_space(data: ReportData) -> Finding | None:
    """Compare states within the middle with those of the ends, as published and at equal distance between layers."""
    estimates = read_estimates(data, "same_space", "published", "beginning", "ending")
    if estimates is None:
        return None
    published, *ends = estimates
    at = [end.locate(MIN_COSINE) for end in ends]
    closest = min(ends, key=lambda end: end.value)
    if published.locate(MIN_COSINE) in ("within", "below"):
        verdict = Verdict.CONTRADICTED
        answer = "No: states of the middle are no more alike than they are with those of the ends."
    elif published.locate(MIN_COSINE) == "above" and not {"within", "below"}.isdisjoint(at):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "No more than distance explains: at equal distance the middle is no more alike than it is with an end."
    elif {published.locate(MIN_COSINE), *at} == {"above"}:
        verdict = Verdict.SUPPORTED
        answer = "Yes: at equal distance the middle is more alike than it is with either end."
    else:
        verdict = Verdict.INCONCLUSIVE
        answer = describe_undecided(max(estimates, key=lambda each: each.mde or 0.0), MIN_COSINE)
    return Finding(
        "Do the middle layers share one representation space?",
        f"{answer} As published, the cosine within the middle is {format_estimate(published, signed=True)} higher.",
        verdict,
        closest,
        "of cosine above the nearer end",
        MIN_COSINE,
        "The ends are an eighth of the depth each. At equal distance, states are compared without sink tokens and less"
        " what tokens of other documents share.",
        Published(
            PAPER,
            "The hidden states of the middle layers are alike, and unlike those of the first and the last layers.",
            "maps of cosines",
            "section 3.1, figure 3",
        ),
    )


def judge_all_layers_needed(data: ReportData) -> Finding | None:
    """Compare what a skipped layer costs in windows of up to a quarter of the depth and in the widest one."""
    estimates = read_estimates(data, "all_needed", "saved", "rise")
    if estimates is None:
        return None
    saved, rise = estimates
    of_saved, of_rise = saved.locate(MIN_SAVED), rise.locate(MIN_NATS)
    if of_rise in ("within", "below"):
        verdict, answer = Verdict.CONTRADICTED, "The cost does not rise with the number of skipped layers."
    elif of_saved == "below":
        verdict, answer = Verdict.CONTRADICTED, "Yes: a few layers cost more than their share."
    elif of_saved == of_rise == "above":
        verdict, answer = Verdict.SUPPORTED, "No: a few skipped layers cost less than their share of the whole middle."
    elif of_saved == "within" and of_rise == "above":
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "A few skipped layers cost just their share: fewer cost less because they are fewer."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(saved, MIN_SAVED)
    return Finding(
        "Are all layers needed?",
        f"{answer} Skipping the whole middle costs {format_estimate(rise, signed=True)} nats/token more than a few.",
        verdict,
        saved,
        "of a layer's share saved",
        MIN_SAVED,
        "A few layers are the published windows of up to a quarter of the depth, and the whole middle is the widest"
        f" window. A rise of {MIN_NATS:g} nats/token or less is none.",
        Published(
            PAPER,
            "A few middle layers can be left out at little cost, and it costs more and more to leave out others.",
            "a curve",
            "section 3.2, figure 4",
        ),
    )


PAINTERS_FINDINGS = (judge_middle_layers_share_space, judge_all_layers_needed)
