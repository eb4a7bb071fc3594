"""Findings of a growth run: whether a schedule beats uniform training, whether layer roles are why, and fairness.

Phases also restart the learning rate and spend differently, so only a schedule that beats each of its controls, the
same schedule with the layer roles exchanged, shows that it matters which layers train when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.page.finding import Effect, Finding, Verdict, firmness, judged
from layerwise.page.show import NUMBER, SIGNED, adjusted_p
from layerwise.page.text.number_format import tidy
from layerwise.page.text.wording import counted, listed, sentence
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.vocabulary import DIFFERENCE, LOSS_RATIO, TOKENS, WARMUP

EFFECTS: Mapping[Effect, str] = {
    "better": "the {arm} schedule is better than uniform training: {number}",
    "worse": "the {arm} schedule is worse than uniform training: {number}",
    "open": "the difference between the {arm} schedule and uniform training is inconclusive{limit}: {number}",
    "bare": "the {arm} schedule differs from uniform training by {number}, without an interval,",
}
OUTCOMES: Mapping[Effect, str] = {
    "better": "better",
    "worse": "worse",
    "open": "inconclusive",
    "bare": "without an interval",
}
BESIDE: Mapping[Effect, str] = {
    "better": "better than",
    "worse": "worse than",
    "open": "not distinguishable from",
    "bare": "not distinguished, for want of an interval, from",
}
BASELINES: Mapping[Verdict, tuple[str, str]] = {
    Verdict.SUPPORTED: ("Yes.", ""),
    Verdict.INCONCLUSIVE: ("Not beyond its seeds.", "; what is gained on it may be gained by letting layers rest"),
    Verdict.CONTRADICTED: ("No.", ", which needs no layers: any schedule may win that lets them rest"),
}


def growth_findings(data: ReportData) -> Iterator[Finding]:
    for finding in (verdict, _learned, _tuned):
        if (each := finding(data)) is not None:
            yield each


def verdict(data: ReportData) -> Finding | None:
    """Judge whether the planned schedule beats uniform training, and whether the roles of layers are why."""
    arm = growth.planned(data)
    compared = None if arm is None else _at_equal_cost(data, arm) or _at_equal_steps(data, arm)
    if arm is None or compared is None:
        return None
    first, effect, score, others = compared
    count = counted(min(len(growth.seeds(data, each)) for each in (growth.Training(arm), growth.UNIFORM)), "seed")
    caveats = [_roles(data, arm, effect)]
    if not growth.tunings(data):
        caveats.append("no learning rate was tuned, and another might turn this round")
    if baseline(data) not in (None, Verdict.SUPPORTED):
        caveats.append(
            "but uniform training is not shown to beat a table of token pairs, so this says nothing of layers"
        )
    compared_in_words, caveats_in_words = "; ".join((f"{first} over {count}", *others)), "; ".join(caveats)
    return Finding(
        "Does training where layers need it help?",
        f"{sentence(compared_in_words)} {sentence(caveats_in_words)}",
        firmness(effect),
        Estimate.read(score),
        "nats/token" if score.metric == DIFFERENCE else "times",
    )


Compared = tuple[str, Effect, Score, tuple[str, ...]]
"""The comparison that decides in words, what it says, its number, and the other comparisons in words."""


def _at_equal_cost(data: ReportData, arm: str) -> Compared | None:
    rows = {terms: growth.against(data, growth.Training(arm), terms=terms) for terms in growth.TERMS}
    known = {terms: row for terms, row in rows.items() if row is not None}
    if not known:
        return None
    (terms, score), *others = known.items()
    effect = judged(score, data.level)
    number, limit = f"{SIGNED.text(score)} nats per token", _limit(score, data.level)
    statement = f"{growth.TERMS[terms]}, {EFFECTS[effect].format(arm=arm, number=number, limit=limit)}"
    return statement, effect, score, tuple(_outcome(data, name, row) for name, row in others)


def _outcome(data: ReportData, terms: str, score: Score) -> str:
    effect = judged(score, data.level)
    limit = _limit(score, data.level) if effect == "open" else ""
    return f"{growth.TERMS[terms]} {OUTCOMES[effect]}{limit}, {SIGNED.text(score)}"


def _at_equal_steps(data: ReportData, arm: str) -> Compared | None:
    ratio = growth.against(data, growth.Training(arm), terms=TOKENS, metric=LOSS_RATIO)
    if ratio is None:
        return None
    effect: Effect = "open"
    if ratio.low is None or ratio.high is None:
        effect = "bare"
    elif ratio.low > 1.0:
        effect = "better"
    elif ratio.high < 1.0:
        effect = "worse"
    words = f"after as many steps, uniform's loss is {NUMBER.text(ratio)} times that of the {arm} schedule"
    return words, effect, ratio, ()


def baseline(data: ReportData) -> Verdict | None:
    """Return whether uniform training ends below the bigram baseline; None without one of them."""
    own, null = growth.held_out(data, growth.UNIFORM), growth.token_pairs(data)
    if own is None or null is None:
        return None
    low, high = (own.value if bound is None else bound for bound in (own.low, own.high))
    if high < null.value:
        return Verdict.SUPPORTED
    return Verdict.CONTRADICTED if low > null.value else Verdict.INCONCLUSIVE


def _roles(data: ReportData, arm: str, effect: Effect) -> str:
    rows = {control: growth.against(data, growth.Training(arm), control) for control in growth.CONTROLS}
    compared = {control: row for control, row in rows.items() if row is not None}
    if not compared:
        return f"{arm} was compared with no permuted or reversed control, so nothing is known of layer roles"
    fates = {control: judged(score, data.level) for control, score in compared.items()}
    clauses = []
    for fate in dict.fromkeys(fates.values()):
        others = (f"{growth.CONTROLS[each]}, {SIGNED.text(compared[each])}" for each in compared if fates[each] == fate)
        clauses.append(f"{BESIDE[fate]} itself with {', or with '.join(others)}")
    return f"the schedule is {', and '.join(clauses)}, {_conclusion(effect, fates)}"


def _conclusion(effect: Effect, fates: Mapping[str, Effect]) -> str:
    if set(fates.values()) == {"better"}:
        least = "" if "permuted" in fates else f", as far as {listed([*fates])} can decide without permuted"
        beaten = "" if effect == "better" else ", though that does not make it better than uniform training"
        return f"so it matters which layers train when{least}{beaten}"
    if "worse" in fates.values():
        return "so the roles that it gives the layers are not the right ones"
    if effect == "better":
        return "so the gain is not shown to come from which layers train when"
    return "so nothing shows that it matters which layers train when"


def _learned(data: ReportData) -> Finding | None:
    state = baseline(data)
    if state is None:
        return None
    words, ending = BASELINES[state]
    uniform, pairs = NUMBER.text(growth.held_out(data, growth.UNIFORM)), NUMBER.text(growth.token_pairs(data))
    answer = f"{words} It ends at {uniform} nats per token, a table of token pairs counted on the same text at {pairs}"
    return Finding("Did uniform training learn what needs layers?", f"{answer}{ending}.", state)


def _tuned(data: ReportData) -> Finding | None:
    rates, warmups = growth.tunings(data), growth.tunings(data, WARMUP)
    if not rates and not warmups:
        return None
    parts = [*map(_tuning, rates), *(f"the warm-up of {_tuning(each)}" for each in warmups)]
    several = any(score.low is not None for tuning in (*rates, *warmups) for score in tuning.losses.values())
    who = "Several seeds chose" if several else "One seed chose, so no interval"
    return Finding("Was the learning rate tuned?", f"{'; '.join(parts)}. {who}.")


def _tuning(tuning: growth.Tuning) -> str:
    tried = listed([f"{rate:g}" for rate in tuning.losses])
    beyond = ", the end of those tried: a better one may lie beyond" if tuning.at_end else ""
    return f"{tuning.arm} took {tuning.chosen:g} of {tried}{beyond}"


def _limit(score: Score, level: float) -> str:
    """Say what would have been detectable, or that only the correction over variants made it inconclusive.

    >>> _limit(Score("growth", "difference", 0.1, p=0.03, p_adjusted=0.2), 0.05)
    ' among so many arms (adjusted p 0.20)'
    """
    if score.p is not None and score.p < level:
        return f" among so many arms (adjusted p {adjusted_p(score)})"
    return "" if score.mde is None else f" above {tidy(score.mde)} nats"
