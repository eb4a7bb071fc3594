"""Two claims of the ELC-BERT paper about worth: weights on layers are worth their cost, and teach more grammar."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layerwise.report.claims.claim import Claim, Published, Span, seen, span
from layerwise.report.claims.trained import more
from layerwise.report.data import Evidence
from layerwise.report.pretraining import STUDY
from layerwise.report.wording import counted
from layerwise.results.rows import Score

GAIN, LEARNED = "elc - ltg", "elc - elc-held"
NEEDS = "It needs a study of the arms elc and ltg: layerwise study layer-weights."
NULL = (
    " The nulls are the backbone ltg, and elc-held, whose weights stay as they are at the start. Supported: the gain on"
    " ltg is above zero, by more than counts, and so is the gain on elc-held. Explained by the null: the gain on ltg is"
    " within the margin, or it is there and the gain on elc-held is not. Contradicted: elc does worse than ltg. Each is"
    " read off a 95 % interval over seeds (Student's)."
)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a gain is read: the tasks of the study (against ltg, and against elc-held), its sign, its margin and unit."""

    against_ltg: str
    against_held: str
    better: int
    margin: float
    unit: str
    scale: float = 1.0


WORTH = Published(
    "worth",
    "Worth their cost",
    "With learned weights on the layers below, the same backbone in the same training is better: ELC-BERT won BabyLM"
    " 2023 with 74.3 and 65.9 points overall.",
    "arXiv 2311.02265, abstract and results; the backbone beside it in arXiv 2410.24159, Table 1",
    "The gain is the held-out loss of ltg minus that of elc in nats a masked token, trained with the same seeds for the"
    " same seconds, so that the time that weighing takes is paid for; what counts is 0.01 nats. Against elc-held, which"
    " takes the same time, it is at the same steps." + NULL,
)
WORTH_TERMS = Terms("masked_lm seconds", "masked_lm tokens", -1, 0.01, "nats")

GRAMMAR = Published(
    "grammar",
    "More grammar is learned",
    "At the same steps more minimal pairs are judged right: on BLiMP 85.8 % against 85.3 % after 100 million words,"
    " 80.5 % against 80.6 % after 10 million.",
    "arXiv 2410.24159, Table 1, of the models of arXiv 2311.02265",
    "The gain is the accuracy of elc on minimal pairs minus that of ltg, trained with the same seeds for the same"
    " steps; what counts is half a point." + NULL,
)
GRAMMAR_TERMS = Terms("pairs tokens", "pairs tokens", 1, 0.005, "points", 100.0)


def worth(evidence: Evidence) -> Claim:
    """Is a model with layer weights better than its backbone in the same time, and because they are learned?

    - supported: it is, and better than one whose weights are held at their start.
    - explained by the null: the backbone does as well in the time, or held weights do.
    - contradicted: the backbone does better in the time.
    - not resolvable: an interval holds both answers.
    """
    return _gain(evidence, WORTH, WORTH_TERMS)


def grammar(evidence: Evidence) -> Claim:
    """Does a model with layer weights know more grammar than its backbone after as many steps?

    The verdicts are those of `worth`.
    """
    return _gain(evidence, GRAMMAR, GRAMMAR_TERMS)


def _gain(evidence: Evidence, published: Published, terms: Terms) -> Claim:
    found = evidence.pretraining
    score = found.score(STUDY, "difference", GAIN, terms.against_ltg)
    if score is None:
        return published.unmeasured(NEEDS)
    gain = _span(score, terms)
    learned = _span(found.score(STUDY, "difference", LEARNED, terms.against_held), terms)
    if gain is None:
        return published.claim("not resolvable", "", "One training says nothing of others: train two seeds or more.")
    seeds = counted(min(len(found.seeds.get(arm, ())) for arm in ("elc", "ltg")), "seed")
    beside = f", on held weights {_shown(learned, terms)}" if learned else ""
    figures = f"The gain on the backbone is {_shown(gain, terms)}{beside} {terms.unit} ({seeds})."
    power = _power(score, terms)
    place = gain.position(terms.margin)
    if place == "within":
        return published.claim("explained by the null", figures, "The backbone does as well on these terms.", power)
    if place == "below":
        return published.claim("contradicted", figures, "The backbone does better on these terms.", power)
    if place == "open":
        why = f"The interval holds both answers.{more(score, terms.margin, 'the seeds')}"
        return published.claim("not resolvable", figures, why, power)
    if learned is None:
        why = "It gains, but whether by learning its weights is not known: elc-held was not trained."
        return published.claim("not resolvable", figures, why, power)
    if learned.position(terms.margin) == "above":
        why = "It gains, and loses the gain where its weights are held at their start."
        return published.claim("supported", figures, why, power)
    if learned.position(terms.margin) == "open":
        why = "It gains, but whether by learning its weights is not resolved."
        return published.claim("not resolvable", figures, why, power)
    why = "It gains, but as much with weights that are held at their start: the mixture does it, not its learning."
    return published.claim("explained by the null", figures, why, power)


def _span(score: Score | None, terms: Terms) -> Span | None:
    """A difference of the study as a gain: above zero is better."""
    found = span(score)
    if found is None or terms.better > 0:
        return found
    return Span(-found.value, -found.high, -found.low, found.resolution)


def _shown(found: Span, terms: Terms) -> str:
    scale = terms.scale
    return Span(scale * found.value, scale * found.low, scale * found.high).signed


def _power(score: Score, terms: Terms) -> str:
    if score.resolution is None:
        return ""
    told = replace(score, resolution=terms.scale * score.resolution)
    return seen(told, terms.scale * terms.margin, terms.unit)
