"""The claims of LayerShuffle: what they read, what counts, and which verdict follows."""

from __future__ import annotations

from dataclasses import replace

from layerwise.page.claims.contrasts import (
    SHARES,
    Fact,
    Facts,
    Read,
    Several,
    clipped,
    contrast_rows,
    contrast_tasks,
    nulls,
    short_of,
    training_ends,
)
from layerwise.page.data import ReportData
from layerwise.page.text.number_format import fixed, probability, tidy
from layerwise.page.text.wording import listed
from layerwise.results.vocabulary import CHANCE, ROBUSTNESS

LOSS, POSITION_GAIN = 0.05, 0.03
PUBLISHED_RIGHT, SHORT = 0.9999, 0.02
RELATED, OTHER_LAYERS, LEVEL = 0.3, 0.1, 0.05
BASELINE, LAYERSHUFFLE = "baseline", "layershuffle"
ARMS = ("layershuffle-position", "layershuffle-predict")
NEAR_CHANCE = 0.05
"""How far above chance an accuracy must be shown to be for its model to have learned."""

IN_ORDER = Read("in_order", bound=NEAR_CHANCE, optional=True, of="collapse")
IN_RANDOM_ORDER = Read("random_order", bound=NEAR_CHANCE, optional=True, of="position_informed")


def collapse(data: ReportData) -> Facts | None:
    rows = contrast_rows(data, "collapse")
    if "random_order" not in rows:
        return None
    chance = data.rows.value(measure=ROBUSTNESS, metric="accuracy", arm=None, against=CHANCE)
    within = SHARES if chance is None else (-chance, 1.0 - chance)
    facts = {"free": rows["random_order"], "skill": rows.get("in_order")}
    return {
        **{name: row and Fact(row, NEAR_CHANCE, NEAR_CHANCE, within) for name, row in facts.items()},
        **training_ends(BASELINE)(data),
    }


def positions(data: ReportData) -> Facts | None:
    rows = contrast_rows(data, "positions")
    short, probes = rows.get("short"), nulls("short", SHORT, SHORT).fact(rows)
    if short is None or not isinstance(probes, Several):
        return None
    beside = listed([f"a probe of {name} in {_right(fact)} %" for name, fact in probes.facts.items()])
    return {
        "short": Fact(short, SHORT, SHORT, within=(PUBLISHED_RIGHT - 1, PUBLISHED_RIGHT)),
        "probes": probes,
        "right": _right(Fact(short)),
        "bare": tidy(100 * (PUBLISHED_RIGHT - short.value)),
        "beside": f", {beside}" if beside else "",
        "skill": Fact(short_of(short, PUBLISHED_RIGHT - 1 / data.depth), 0.0, 0.0) if data.depth else None,
        **training_ends("layershuffle-predict")(data),
    }


def _right(short: Fact) -> str:
    right = clipped(short_of(short.score, PUBLISHED_RIGHT), 0.0, 1.0)
    value, low, high = (fixed(100 * (end or 0.0), 2) for end in (right.value, right.low, right.high))
    return f"{value} [{low}, {high}]"


def position_informed(data: ReportData) -> Facts | None:
    rows = {arm: row for arm, row in contrast_tasks(data, "position_informed", "gain").items() if arm in ARMS}
    if not rows:
        return None
    gains = {arm: Fact(rows[arm], POSITION_GAIN, POSITION_GAIN, SHARES) for arm in ARMS if arm in rows}
    spans = [bounds for fact in gains.values() if (bounds := fact.bounds) is not None]
    return {
        "gains": Several({arm: replace(fact, bound=None) for arm, fact in gains.items()}, "{1} {0:%}", together=1),
        "bare": listed([f"{arm} {tidy(100 * fact.score.value, signed=True)}" for arm, fact in gains.items()]),
        "differs": any(
            each.against(POSITION_GAIN) == "above" or each.against(-POSITION_GAIN) == "below" for each in spans
        ),
        "told": Several(gains, together=1),
        **training_ends(LAYERSHUFFLE, *ARMS)(data),
        "skill": IN_RANDOM_ORDER.fact(contrast_rows(data, "position_informed")),
    }


def switching_off(data: ReportData) -> Facts | None:
    rows = contrast_rows(data, "switching_off")
    if not {"relation", "above_other_layers"} <= set(rows):
        return None
    relation, own = rows["relation"], rows["above_other_layers"]
    rivals = nulls("relation", bound=RELATED).fact(rows)
    others = rivals.facts if isinstance(rivals, Several) else {}
    beside = listed([f"{name} {Fact(clipped(fact.score))}" for name, fact in others.items()])
    p, mde = relation.p, relation.mde
    possible = [] if mde is None else [side for side in (RELATED - mde, RELATED + mde) if abs(side) <= 1.0]
    sides = f"{' or '.join(map(tidy, possible))} from {RELATED:g}." if possible else ""
    return {
        "relation": Fact(relation, RELATED, RELATED),
        "own": Fact(own, 0.0),
        "other": Fact(own, OTHER_LAYERS),
        "rivals": rivals,
        "shown": Fact(clipped(relation)),
        "shuffled": "" if p is None else f" (p {probability(p)} against shuffled positions)",
        "beside": f"; {beside}" if beside else "",
        "shuffled_apart": p is not None and p < LEVEL,
        "power": f"Of 100 such runs 80 would distinguish {sides}" if sides else "",
        **training_ends(LAYERSHUFFLE)(data),
        "skill": IN_RANDOM_ORDER.fact(contrast_rows(data, "position_informed")),
    }
