"""Three claims about how steeply quality falls as more layers are affected: the shallowest two, and the one to chance.

The paper draws benchmarks, so slopes are asked of their scores where they were run; and of losses always.
"""

from __future__ import annotations

from itertools import product

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import Contrasts, contrasts
from layerwise.report.claims.painters.benchmarks import BENCHMARKS, QUESTIONS
from layerwise.report.claims.painters.costs import SWEEP
from layerwise.report.claims.power import more
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between
from layerwise.report.page.wording import label, listed

MILDEST = ("random", "looped_parallel")
STEEPER = tuple(name for name in PAINTERS_RANKING if name not in MILDEST)
PAIRS = {milder: tuple(f"{harsher}:{milder}" for harsher in STEEPER) for milder in MILDEST}
ALL_PAIRS = tuple(f"{harsher}:{milder}" for milder, harsher in product(MILDEST, STEEPER))

STATEMENT = "Looped parallel and random layer order degrade the least steeply as more layers are affected."
CITATION = "arXiv 2407.09298, section 3.8, figure 11"
RULE = (
    " Both are held against the four other strategies, eight pairs, corrected over them; less than 5 % of the mean of"
    " two slopes is no difference. Supported: all eight pairs stand as published. Contradicted: in two pairs or"
    " more the other strategy is shown to be shallower. Explained by the null: in all eight pairs the slopes are shown"
    " to be alike."
)
SHALLOWEST = Published(
    "shallowest",
    "Random order and looped parallel are the shallowest (loss)",
    STATEMENT,
    CITATION,
    "The slope of a strategy is that of the line, from no cost at no layers, through its costs in nats per token at all"
    f" published windows of more than one layer.{RULE}",
    SWEEP,
)
ON_BENCHMARKS = Published(
    "shallowest_on_benchmarks",
    "Random order and looped parallel are the shallowest (benchmarks)",
    STATEMENT,
    CITATION,
    "Scores are on the scale from 0, chance, to 1, the model as trained, and the mean over the benchmarks is taken. The"
    " slope of a strategy is that of the line, from the model as trained, through its scores at all published windows"
    f" of more than one layer.{RULE}",
    BENCHMARKS,
)


def shallowest(evidence: Evidence) -> Claim:
    """Does the loss rise least steeply under random order and looped parallel?"""
    rows = contrasts(evidence, SHALLOWEST.key, *ALL_PAIRS, *PAINTERS_RANKING)
    if rows is None:
        return SHALLOWEST.unmeasured()
    slopes = {name: rows.shown(name) for name in sorted(PAINTERS_RANKING, key=rows.value)}
    figures = f"Nats per token for each layer affected, least first: {_chain(slopes)}{rows.tokens}."
    return _decided(SHALLOWEST, figures, rows, rows.needed(*ALL_PAIRS))


def shallowest_on_benchmarks(evidence: Evidence) -> Claim:
    """Do benchmarks fall least steeply under random order and looped parallel?"""
    rows = contrasts(evidence, ON_BENCHMARKS.key, *ALL_PAIRS)
    falls = contrasts(evidence, "benchmark_fall", *PAINTERS_RANKING)
    if rows is None or falls is None:
        return ON_BENCHMARKS.unmeasured()
    slopes = {name: between_of(falls, name) for name in sorted(PAINTERS_RANKING, key=falls.value)}
    figures = f"Of the scale for each tenth of the depth affected, least first: {_chain(slopes)}."
    return _decided(ON_BENCHMARKS, figures, rows, f"An interval holds both answers.{_more(rows)}")


def _decided(published: Published, figures: str, rows: Contrasts, otherwise: str) -> Claim:
    positions = rows.positions(*ALL_PAIRS)
    turned = [pair for pair, position in positions.items() if position == "below"]
    shown = [name for name in MILDEST if {positions[pair] for pair in PAIRS[name]} == {"above"}]
    partly = f"{listed([label(name) for name in shown])} alone is shown to be. " if len(shown) == 1 else ""
    return published.decided(
        figures,
        rows.seen(*ALL_PAIRS, unit="of the mean of two slopes"),
        (set(positions.values()) == {"within"}, BY_NULL, "All slopes are alike."),
        (len(turned) > 1, CONTRADICTED, f"{listed([_shallower(pair) for pair in turned])}."),
        (len(shown) == len(MILDEST), SUPPORTED, "Both are shallower than each of the others."),
        otherwise=f"{partly}{otherwise}",
    )


def _shallower(pair: str) -> str:
    harsher, _, milder = pair.partition(":")
    return f"{label(harsher)} is shallower than {label(milder)}"


def between_of(rows: Contrasts, metric: str) -> str:
    """A number with its interval, without a sign."""
    score = rows[metric]
    return between(score.value, score.low, score.high)


def _chain(slopes: dict[str, str]) -> str:
    return listed([f"{label(name)} {shown}" for name, shown in slopes.items()])


def _more(rows: Contrasts) -> str:
    widest = max((rows[pair] for pair in ALL_PAIRS), key=lambda score: score.mde or 0.0)
    return more(widest, 0.05, QUESTIONS)


AT_CHANCE = 0.1
REPEAT = Published(
    "repeat_at_chance",
    "Repeating the middle layer falls to chance",
    "With copies of the centre layer in the place of the middle layers, quality degrades to the random baseline.",
    "arXiv 2407.09298, sections 3.3 and 3.8, figure 5",
    "Scores are on the scale from 0, chance, to 1, the model as trained; their mean over the benchmarks and over the"
    " windows of half the depth and more is taken. At chance is inside a tenth of the scale about 0. Supported:"
    " repeating is at chance, and skipping the same layers is above it. Explained by the null: both are at chance: the"
    " absence of the layers is enough to explain it. Contradicted: repeating is shown to stay a tenth of the scale"
    " above chance, or more.",
    BENCHMARKS,
)


def repeat_at_chance(evidence: Evidence) -> Claim:
    """Does repeating the middle layer bring the benchmarks to chance, where absence does not?"""
    rows = contrasts(evidence, REPEAT.key, "middle_repeat", "skip")
    if rows is None:
        return REPEAT.unmeasured()
    repeated, absent = rows.position("middle_repeat", AT_CHANCE), rows.position("skip", AT_CHANCE)
    bounds = rows.span("middle_repeat")
    above = bounds is not None and bounds.against(AT_CHANCE) == "above"
    same = "Skipping the same layers brings them to chance too."
    return REPEAT.decided(
        f"At windows of half the depth and more, repeating leaves {between_of(rows, 'middle_repeat')} of the scale and"
        f" skipping {between_of(rows, 'skip')}.",
        rows.seen("middle_repeat", margin=AT_CHANCE, unit="of the scale", together=1),
        (above, CONTRADICTED, "Repeating leaves more than chance."),
        (repeated == "within" and absent in NOT_ABOVE, BY_NULL, same),
        (repeated == "within" and absent == "above", SUPPORTED, "Repeating leaves chance, and absence more than that."),
        otherwise=f"An interval holds both answers.{more(rows['middle_repeat'], AT_CHANCE, QUESTIONS)}",
    )
