"""Two claims of the ELC-BERT paper about worth: weights on layers are worth their cost, and teach more grammar."""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, OPEN, SUPPORTED, Claim, Published, Span, span
from layerwise.report.claims.elc_bert.learned import NOT_LEARNED, not_above_chance
from layerwise.report.claims.power import more, seen
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import counted
from layerwise.report.pretraining.lookup import BACKBONE, STUDY
from layerwise.results.rows import Score

GAIN, LEARNED = "elc - ltg", "elc - elc-frozen"
NEEDS = "It needs a study of the arms elc and ltg: layerwise study layer-weights."
NULL = (
    " The nulls are the backbone ltg, and elc-frozen, whose layer weights keep their initial values. Supported: the"
    " gain on ltg is above zero, by more than counts, and so is the gain on elc-frozen. Explained by the null: the gain"
    " on ltg is within the margin, or it is there and the gain on elc-frozen is not. Contradicted: elc does worse than"
    " ltg. Each is read off a 95 % interval over seeds (Student's)." + NOT_LEARNED.format("ltg")
)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a gain is read: the tasks of the study (against ltg and elc-frozen), its sign, its margin and its unit."""

    against_ltg: str
    against_held: str
    better: int
    margin: float
    unit: str
    scale: float = 1.0

    def gain(self, score: Score | None) -> Span | None:
        """A difference of the study as a gain: above zero is better."""
        bounds = span(score)
        return bounds and bounds.times(self.better)


WORTH = Published(
    "worth",
    "Worth their cost",
    "With learned weights on the layers below, the same backbone in the same training is better: ELC-BERT won BabyLM"
    " 2023 with 74.3 and 65.9 points overall.",
    "arXiv 2311.02265, abstract and results; the backbone beside it in arXiv 2410.24159, Table 1",
    "The gain is the held-out loss of ltg minus that of elc in nats a masked token, trained with the same seeds for the"
    " same seconds, so that the time that weighing takes is paid for; what counts is 0.01 nats. Against elc-frozen,"
    " which takes the same time, it is at the same steps." + NULL,
    NEEDS,
)
WORTH_TERMS = Terms("masked_lm seconds", "masked_lm tokens", -1, 0.01, "nats")

GRAMMAR = Published(
    "grammar",
    "More grammar is learned",
    "At the same steps more minimal pairs are right: on BLiMP 85.8 % against 85.3 % after 100 million words,"
    " 80.5 % against 80.6 % after 10 million.",
    "arXiv 2410.24159, Table 1, of the models of arXiv 2311.02265",
    "The gain is the accuracy of elc on minimal pairs minus that of ltg, trained with the same seeds for the same"
    " steps; what counts is half a point." + NULL,
    NEEDS,
)
GRAMMAR_TERMS = Terms("pairs tokens", "pairs tokens", 1, 0.005, "points", 100.0)


def worth(evidence: Evidence) -> Claim:
    """Is a model with layer weights better than its backbone in the same time, and because they are learned?"""
    return _gain(evidence, WORTH, WORTH_TERMS)


def grammar(evidence: Evidence) -> Claim:
    """Does a model with layer weights know more grammar than its backbone after as many steps?"""
    return _gain(evidence, GRAMMAR, GRAMMAR_TERMS)


def _gain(evidence: Evidence, published: Published, terms: Terms) -> Claim:
    rows = evidence.pretraining
    score = rows.score(STUDY, "difference", GAIN, terms.against_ltg)
    if score is None:
        return published.unmeasured()
    gain = terms.gain(score)
    learned = terms.gain(rows.score(STUDY, "difference", LEARNED, terms.against_held))
    if gain is None:
        return published.undecided("", "One training says nothing of others: train two seeds or more.")
    seeds = counted(min(len(rows.seeds.get(arm, ())) for arm in ("elc", "ltg")), "seed")
    beside = f", on frozen weights {learned.times(terms.scale).signed}" if learned else ""
    position, own = gain.position(terms.margin), learned.position(terms.margin) if learned else None
    return published.decided(
        f"The gain on the backbone is {gain.times(terms.scale).signed}{beside} {terms.unit} ({seeds}).",
        seen(score, terms.margin, terms.unit, terms.scale),
        not_above_chance(rows, BACKBONE),
        (position == "within", BY_NULL, "The backbone does as well on these terms."),
        (position == "below", CONTRADICTED, "The backbone does better on these terms."),
        (position == "open", OPEN, f"The interval holds both answers.{more(score, terms.margin, 'the seeds')}"),
        (own is None, OPEN, "It gains, but whether by learning its weights is not known: elc-frozen was not trained."),
        (own == "above", SUPPORTED, "It gains, and loses the gain where its weights are held at their start."),
        (
            own != "open",
            BY_NULL,
            "It gains, but as much with weights that are held at their start: the mixture does it, not its learning.",
        ),
        otherwise="It gains, but whether by learning its weights is not resolved.",
    )
