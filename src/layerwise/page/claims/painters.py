"""The claims of the Painters: what they read, what counts, and which verdict follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise, product
from math import exp, log

from layerwise.page.claims.claim import on_tokens, span, widest
from layerwise.page.claims.contrasts import (
    ALIKE,
    BARE,
    Fact,
    Facts,
    Read,
    Several,
    contrast_rows,
    contrast_tasks,
    facts_of,
)
from layerwise.page.data import ReportData
from layerwise.page.derived.swept import LOOP_COUNT
from layerwise.page.derived.zones import MARGIN as BORDER
from layerwise.page.derived.zones import PlanZones, trained_zones
from layerwise.page.text.number_format import tidy
from layerwise.page.text.wording import counted, label, listed
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.multiplicity import normal_widening
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST, EXCESS, LESS, LOG_RATIO, RELATIVE, SLOPE

PER_LAYER, CLEARER, ABRUPT, ON_SCALE = 0.1, 0.05, 0.25, 0.05
FASTER = log(1.25)
"""A benchmark that falls less than a quarter faster, or slower, than the others falls as they do."""
EXPECTED = "gsm8k"
PUBLISHED_ZONES = 3
ORDERS, ABSENCE = ("reverse", "random"), "skip"
PAIRS = tuple(f"{harsher}:{milder}" for milder, harsher in combinations(PAINTERS_RANKING, 2))
STEPS = tuple(f"{harsher}:{milder}" for milder, harsher in pairwise(PAINTERS_RANKING))
FEWEST_AS_PUBLISHED = 13
FEWEST_REVERSED = 1 + len(PAIRS) - FEWEST_AS_PUBLISHED
MILDEST = ("random", "looped_parallel")
STEEPER = tuple(name for name in PAINTERS_RANKING if name not in MILDEST)
MILD_PAIRS = {f"{harsher}:{milder}": (harsher, milder) for milder, harsher in product(MILDEST, STEEPER)}


def costs(claim: str) -> Callable[[ReportData], Facts]:

    def words(data: ReportData) -> Facts:
        rows = {**contrast_rows(data, "ranking"), **contrast_rows(data, claim)}
        known = {name: rows.get(f"cost:{name}", rows.get(name)) for name in PAINTERS_RANKING}
        unknown = "an unknown number of"
        return {"cost": {name: unknown if row is None else f"{Fact(row):+}" for name, row in known.items()}}

    return words


def _zones(data: ReportData) -> tuple[dict[str, object], PlanZones | None] | None:
    rows = contrast_rows(data, "three_zones")
    if not {"zones", "beyond_walks"} <= set(rows):
        return None
    own = trained_zones(data)
    by_margin = own.by_margin if own else ""
    beyond = Fact(rows["beyond_walks"], bound=CLEARER)
    walks = f"{by_margin} Nor is the least border of the best three clearer than that of walks by {CLEARER:g}."
    facts = {
        "beyond": beyond,
        "tokens": on_tokens(rows.values()),
        "no_clearer": walks if by_margin else "The best three zones are no clearer than those of a walk.",
        "one_open": by_margin or "No border is clearer than a walk gives, and it is not shown that there is none.",
    }
    return facts, own


def three_zones(data: ReportData) -> Facts | None:
    zones = _zones(data)
    if zones is None:
        return None
    rows = contrast_rows(data, "three_zones")
    count = int(rows["zones"].value)
    least = {"": Fact(rows["least"], BORDER)} if "least" in rows else {}
    return {
        **zones[0],
        "zones": counted(count, "zone"),
        "least": Several(least, "{0:+} of cosine", ", whose least border is worth "),
        "one": count == 1,
        "three": count == PUBLISHED_ZONES,
        "other": count > 1 and count != PUBLISHED_ZONES,
    }


def one_ending(data: ReportData) -> Facts | None:
    zones = _zones(data)
    if zones is None or zones[1] is None:
        return None
    facts, own = zones[0], zones[1]
    borders = {str(number): Fact(score, BORDER) for number, score in enumerate(own.contrasts)}
    worth = "".join(f" {border:+}" for border in borders.values())
    return {
        **facts,
        "zones": f"{counted(len(own.ranges), 'zone')} ({own.in_words})",
        "worth": f", whose borders are worth{worth} of cosine" if worth else "",
        "layers": f"{own.beginning} beginning, {own.middle} middle and {own.ending} ending",
        "ending": counted(own.ending, "layer").capitalize(),
        "borders": Several(borders),
        "one": len(own.ranges) == 1,
        "one_layer": own.ending == 1,
    }


def middle(data: ReportData) -> Facts | None:
    rows = contrast_rows(data, "middle")
    if "log_ratio" not in rows or span(rows["log_ratio"]) is None:
        return None
    ratio = Fact(rows["log_ratio"], FASTER)
    facts: dict[str, object] = {"ratio": ratio, "factor": _factor(ratio), "twins": "", "power": ""}
    beyond = Fact(rows["beyond_twins"], FASTER) if span(rows.get("beyond_twins")) else None
    if beyond is not None:
        facts |= {"beyond": beyond, "twins": f"; by that of untrained twins {_factor(beyond)}"}
    decisive = beyond if ratio.position == "below" else ratio
    if decisive is not None and decisive.score.mde is not None:
        seen = exp(max(decisive.score.mde, FASTER))
        facts["power"] = f"Of 100 such runs 80 would see a factor of {tidy(seen)}."
    return facts


def _factor(logs: Fact) -> str:
    value, *ends = (tidy(exp(min(end or 0.0, 50.0))) for end in (logs.score.value, logs.score.low, logs.score.high))
    return f"{value} [{', '.join(ends)}]"


def graceful(data: ReportData) -> Facts | None:
    """Return what each step of an order costs beyond the best parabola, and how much more absence costs at each window.

    Statements about one step or window are corrected over all of both orders (Bonferroni).
    """
    rows = data.rows.where(measure=CONTRAST, claim="graceful", task="all")

    def curve(metric: str, strategy: str) -> dict[int, Score]:
        sizes = rows.where(metric=metric, condition=strategy).along("amount")
        return {int(size): sizes[size] for size in sorted(sizes)}

    steps = {name: curve(EXCESS, name) for name in (*ORDERS, ABSENCE)}
    if not all(steps.values()):
        return None
    beside = {order: curve(LESS, order) for order in ORDERS}
    wider = normal_widening(sum(len(steps[order]) for order in ORDERS))
    abrupt, worse, same, unsure = [], [], [], []
    for order in ORDERS:
        spans = [span(row) for row in beside[order].values()]
        sides = {each.widened(wider).position(ALIKE) if each else "open" for each in spans}
        nowhere_more = all(each is not None and each.low > -ALIKE for each in spans)
        taken = [span(row) for row in steps[order].values()]
        steady = all(each is not None and each.against(ABRUPT) == "below" for each in taken)
        abrupt += [order] if any(each and each.widened(wider).against(ABRUPT) == "above" for each in taken) else []
        worse += [order] if "below" in sides else []
        same += [order] if {each.position(ALIKE) if each else "open" for each in spans} == {"within"} else []
        unsure += [order] if not (steady and nowhere_more and "above" in sides) else []
    greatest = {name: max(curve, key=lambda size: curve[size].value) for name, curve in steps.items()}
    closest = {order: min(curve, key=lambda size: curve[size].value) for order, curve in beside.items()}
    draws = ", and of random orders more draws" if "random" in unsure else ""
    unsure_of = listed([label(order) for order in unsure])
    return {
        "tokens": on_tokens(rows),
        "greatest": listed(
            [
                f"{Fact(steps[name][size]):+} under {label(name)} (up to {size} layers)"
                for name, size in greatest.items()
            ]
        ),
        "closest": listed(
            [
                f"{Fact(beside[order][size]):+} more than {label(order)} (at {size} layers)"
                for order, size in closest.items()
            ]
        ),
        "power": _abrupt_seen([row for order in ORDERS for row in steps[order].values()], wider),
        **{name: _named(orders) for name, orders in (("abrupt", abrupt), ("worse", worse), ("same", same))},
        "sure": not unsure,
        "open": f"Intervals of {unsure_of} hold both answers: it takes more text{draws}."
        if all(map(span, rows))
        else BARE,
    }


def _abrupt_seen(steps: list[Score], wider: float) -> str:
    least = widest(steps)
    if least.mde is None:
        return ""
    abrupt = replace(least, mde=ABRUPT + wider * least.mde)
    return f"{Fact(abrupt, ABRUPT):seen of the whole loss beyond the parabola in one step}"


def _named(orders: list[str]) -> str:
    return listed([label(order) for order in orders]).capitalize()


def fragility(data: ReportData, strategy: str | None = None) -> dict[str, Score]:
    return contrast_tasks(data, "fragile", LOG_RATIO, condition=strategy)


def fragile(data: ReportData) -> Facts | None:
    scores = fragility(data, "parallel")
    if len(scores) < 2:
        return None
    falls = Several(
        {name: Fact(score, FASTER) for name, score in scores.items()}, "{1} loses {0:factor} times", together=1
    )
    expected = {name: fact for name, fact in falls.facts.items() if name.startswith(EXPECTED)}
    named = falls.at("above")
    return {
        "falls": falls,
        "gsm8k": Several(expected),
        "called": listed(list(expected)),
        "fallen": f"{listed(named)} {'falls' if len(named) == 1 else 'fall'} faster than the other benchmarks.",
        "some": bool(named),
        "another": any(name not in expected for name in named),
    }


def order_by_task(data: ReportData) -> Facts | None:
    rows = _of_kinds(data, "order_by_task")
    if "order_less" not in rows or span(rows["order_less"]) is None:
        return None
    less, ratio = rows["order_less"], rows.get(LOG_RATIO)
    facts: dict[str, object] = {
        "reasoning": less.task,
        "text": less.against,
        "less": Fact(less, 0.0),
        "beside": "",
        "power": "",
    }
    if ratio is not None and span(ratio) is not None:
        times = f"order costs {_factor(Fact(ratio))} times as much on reasoning as on text"
        facts |= {"ratio": Fact(ratio, FASTER), "beside": f"; of what absence costs, {times}"}
    position = Fact(less, 0.0).position
    # Where a wrong order costs more and a ratio has no interval, its power is not what decides.
    decisive = ratio if "ratio" in facts or position != "above" else None
    if less.mde is not None and position != "below":
        factor_seen = None if decisive is None or decisive.mde is None else tidy(exp(max(decisive.mde, FASTER)))
        beside = "" if factor_seen is None else f", and a factor of {factor_seen} beside absence"
        facts["power"] = f"Of 100 such runs 80 would see {tidy(less.mde)} nats between the two kinds{beside}."
    return facts


def order_by_benchmark(data: ReportData) -> Facts | None:
    rows = _of_kinds(data, "order_by_benchmark")
    if "windows" not in rows:
        return None
    ratios = contrast_tasks(data, "order_by_benchmark", LOG_RATIO, against=None)
    return {
        "reasoning": rows["windows"].task,
        "semantic": rows["windows"].against,
        "windows": f"{rows['windows'].value:.0f} windows",
        "benchmarks": listed([f"{name} {Fact(score):factor}" for name, score in ratios.items()]),
        **{
            name: Fact(rows[metric], margin)
            for name, metric, margin in (("less", "order_less", ON_SCALE), ("ratio", LOG_RATIO, FASTER))
            if metric in rows
        },
    }


def _of_kinds(data: ReportData, claim: str) -> dict[str, Score]:
    return {row.metric: row for row in data.rows.where(measure=CONTRAST, claim=claim, against=PRESENT)}


def loop_count(data: ReportData) -> Facts | None:
    rows = contrast_rows(data, LOOP_COUNT)
    if not {"slope", "at_end"} <= set(rows):
        return None
    ends, nats = int(rows["at_end"].value), rows.get("gain-loops")
    gain = Read("gain:loops").fact(rows)
    in_nats = f", {Fact(nats):+} nats per token" if nats is not None else ""
    beside = f"the best gains cost {gain:+} of the mean of both above them{in_nats}" if gain else ""
    return {
        "slope": Fact(rows["slope"], PER_LAYER),
        "gain": gain,
        "last": f"; {counted(ends, 'window')} of them best at the greatest count run" if ends else "",
        "against": f"; on text that did not choose them {beside}" if beside else "",
        "tokens": on_tokens(rows.values()),
        "ended": bool(ends),
    }


def ranking(data: ReportData) -> Facts | None:
    """How many of the 15 pairs of strategies stand as published, and how many the other way round."""
    rows = contrast_rows(data, "ranking")
    if not {"tau", *PAIRS, *PAINTERS_RANKING} <= set(rows):
        return None
    counts = Counter(fact.position for fact in facts_of(rows, PAIRS).facts.values())
    as_published, reversed_ = counts["above"], counts["below"]
    least_first = sorted(PAINTERS_RANKING, key=lambda name: rows[name].value)
    return {
        "chain": listed([f"{label(name)} {Fact(rows[name]):+}" for name in least_first]),
        "counts": f"{as_published} stand as published and {reversed_} the other way round",
        "tau": Fact(rows["tau"]),
        "tokens": on_tokens(rows.values()),
        "steps": facts_of(rows, STEPS, together=1),
        "rest": f", but for {counted(len(PAIRS) - as_published, 'pair')}" if as_published < len(PAIRS) else "",
        "as_published": as_published >= FEWEST_AS_PUBLISHED,
        "turned": reversed_ >= FEWEST_REVERSED,
    }


def shallowest(data: ReportData) -> Facts | None:
    return _slopes(data, "shallowest", "shallowest", "+")


def shallowest_on_benchmarks(data: ReportData) -> Facts | None:
    return _slopes(data, "shallowest_on_benchmarks", "benchmark_fall", "")


def _slopes(data: ReportData, claim: str, of_slopes: str, sign: str) -> Facts | None:
    whole = data.rows.where(measure=CONTRAST, task="all")
    slopes = whole.where(claim=of_slopes, metric=SLOPE).along("condition")
    compared = whole.where(claim=claim)
    rows = {
        name: row
        for name, (harsher, milder) in MILD_PAIRS.items()
        if (row := compared.one(metric=RELATIVE, condition=harsher, against=milder)) is not None
    }
    if len(rows) < len(MILD_PAIRS) or not set(PAINTERS_RANKING) <= set(slopes):
        return None
    pairs = facts_of(rows, MILD_PAIRS)
    turned = [MILD_PAIRS[name] for name in pairs.at("below")]
    above = pairs.at("above")
    shown = [name for name in MILDEST if {f"{harsher}:{name}" for harsher in STEEPER} <= set(above)]
    least_first = sorted(PAINTERS_RANKING, key=lambda name: slopes[name].value)
    return {
        "chain": listed([f"{label(name)} {Fact(slopes[name]):{sign}}" for name in least_first]),
        "tokens": on_tokens(compared),
        "pairs": pairs,
        "turned": listed([f"{label(harsher)} is shallower than {label(milder)}" for harsher, milder in turned]),
        "two_turned": len(turned) > 1,
        "both": len(shown) == len(MILDEST),
        "partly": f"{listed([label(name) for name in shown])} alone is shown to be. " if len(shown) == 1 else "",
    }
