"""What became of the published claims about layers, decided for one model from its rows alone.

Four papers found this project (`PAPERS`), and each makes claims: layers are of different kinds, the middle ones are
alike, order matters more for reasoning, weights on layers are worth their cost, a model can be trained for any order.
Every claim has a rule, written beside it and shown on the page, that turns rows, their nulls and their intervals into
one of five verdicts:

    supported              the rows show it, and no null measured beside them shows it too
    explained by the null  a null gives the published figure too, or what counts is shown not to be there
    contradicted           the rows show the opposite
    not resolvable         the intervals of these tokens hold both answers; the claim says how much text would decide
    not measured           the rows that the rule reads are not there

Absence of significance decides nothing here: `layerwise.report.claims.claim` has the arithmetic.
"""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published, Verdict
from layerwise.report.claims.elc_bert.mixing import grammar, worth
from layerwise.report.claims.elc_bert.pattern import alike, pattern
from layerwise.report.claims.heterogeneity.accumulation import accumulation, joint_manipulation
from layerwise.report.claims.heterogeneity.agreement import agreement
from layerwise.report.claims.heterogeneity.growth import growth_cost, growth_loss, growth_time
from layerwise.report.claims.heterogeneity.importance_range import importance_range
from layerwise.report.claims.heterogeneity.joint_collapse import joint_collapse
from layerwise.report.claims.heterogeneity.layers import anti_layers, core
from layerwise.report.claims.heterogeneity.order import order
from layerwise.report.claims.heterogeneity.predictability import predictability
from layerwise.report.claims.heterogeneity.recovery import recovery
from layerwise.report.claims.heterogeneity.redundant_sets import redundant_sets
from layerwise.report.claims.heterogeneity.scaling import scaling
from layerwise.report.claims.heterogeneity.states import middle
from layerwise.report.claims.heterogeneity.weights import oscillation, universal_oscillation
from layerwise.report.claims.layershuffle.merging import merging
from layerwise.report.claims.layershuffle.positions import position_informed, positions
from layerwise.report.claims.layershuffle.shuffled import collapse, pruning, trained_order
from layerwise.report.claims.layershuffle.switching_off import switching_off
from layerwise.report.claims.painters.absence import all_needed, same_function
from layerwise.report.claims.painters.arrangement import any_order, parallel
from layerwise.report.claims.painters.benchmarks import fragile, order_by_benchmark
from layerwise.report.claims.painters.graceful import graceful
from layerwise.report.claims.painters.harm import ranking
from layerwise.report.claims.painters.loops import loop_count, looping
from layerwise.report.claims.painters.slopes import repeat_at_chance, shallowest, shallowest_on_benchmarks
from layerwise.report.claims.painters.space import same_space
from layerwise.report.claims.painters.zones import one_ending, three_zones
from layerwise.report.claims.paper import Judged, Paper, Rule
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence

PAINTERS = Paper(
    "Transformer Layers as Painters",
    "Sun et al., AAAI 2025, arXiv 2407.09298",
    (
        same_space,
        three_zones,
        one_ending,
        middle,
        all_needed,
        same_function,
        repeat_at_chance,
        any_order,
        graceful,
        parallel,
        fragile,
        order,
        order_by_benchmark,
        looping,
        loop_count,
        ranking,
        shallowest,
        shallowest_on_benchmarks,
    ),
    "sweep",
)
HETEROGENEITY = Paper(
    "Anatomical Heterogeneity in Transformer Language Models",
    "arXiv 2603.19348, 2026",
    (
        predictability,
        oscillation,
        universal_oscillation,
        joint_collapse,
        accumulation,
        core,
        anti_layers,
        importance_range,
        redundant_sets,
        recovery,
        scaling,
        joint_manipulation,
        agreement,
        growth_cost,
        growth_loss,
        growth_time,
    ),
    "diagnose",
)
ELC_BERT = Paper(
    "Not all layers are equally as important: Every Layer Counts BERT",
    "Charpentier and Samuel, BabyLM 2023, arXiv 2311.02265",
    (worth, grammar, pattern, alike),
    "study layer-weights",
)
LAYERSHUFFLE = Paper(
    "LayerShuffle: Enhancing Robustness in Vision Transformers by Randomizing Layer Execution Order",
    "Freiberger et al., 2024, arXiv 2407.04513",
    (trained_order, collapse, pruning, positions, position_informed, merging, switching_off),
    "robustness",
)
PAPERS = (ELC_BERT, LAYERSHUFFLE, PAINTERS, HETEROGENEITY)
"""The founding papers, in the order in which they were published."""


def judged(evidence: Evidence) -> tuple[Judged, ...]:
    """The claims of every paper that the run has rows for, those it has no rows for among them as not measured."""
    by_paper = (Judged(paper, tuple(rule(evidence) for rule in paper.rules)) for paper in PAPERS)
    return tuple(each for each in by_paper if each.count)


def claims(evidence: Evidence) -> tuple[Claim, ...]:
    """Every claim of every paper, whether measured or not."""
    return tuple(rule(evidence) for paper in PAPERS for rule in paper.rules)


def claim_lines(data: ReportData) -> tuple[str, ...]:
    """Every claim that a diagnosis or a growth run decides, as one line of text, for a terminal; none for other runs.

    What another command measures is left to the page.
    """
    evidence = Evidence.of(data)
    if not evidence.is_diagnosis and not evidence.growth.measures:
        return ()
    decided = (claim for each in judged(evidence) for claim in each.claims)
    return tuple(claim.line for claim in decided if claim.verdict != "not measured")


__all__ = ["PAPERS", "Claim", "Judged", "Paper", "Published", "Rule", "Verdict", "claim_lines", "claims", "judged"]
