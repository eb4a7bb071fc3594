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
from layerwise.page.text.number_format import fixed, percent, tidy
from layerwise.page.text.wording import counted, listed, sentence
from layerwise.results.rows import Score
from layerwise.results.vocabulary import LOSS_RATIO, MEASURED, PREDICTED, TOKENS, TRAINING, UNIFORM_TRAINING

BUDGET_BAR, STEP_BAR = 0.01, 0.15
"""How far FLOPs may be from uniform's, and the time of a step from its prediction."""

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
    for finding in (verdict, _terms, _learned, _tuned, _accounted):
        if (each := finding(data)) is not None:
            yield each


def verdict(data: ReportData) -> Finding | None:
    arm = growth.planned(data)
    compared = None if arm is None else _at_equal_cost(data, arm) or _at_equal_steps(data, arm)
    if arm is None or compared is None:
        return None
    against_uniform, effect = compared
    count = counted(min(len(growth.seeds(data, each)) for each in (growth.Training(arm), growth.UNIFORM)), "seed")
    clauses = [f"{against_uniform} over {count}", _roles(data, arm, effect)]
    if not growth.tunings(data):
        clauses.append("no learning rate was tuned, and another might turn this round")
    if baseline(data) not in (None, Verdict.SUPPORTED):
        clauses.append(
            "but uniform training is not shown to beat a table of token pairs, so this says nothing of layers"
        )
    return Finding("Does training where layers need it help?", sentence("; ".join(clauses)), firmness(effect))


def _at_equal_cost(data: ReportData, arm: str) -> tuple[str, Effect] | None:
    for terms, score in _on_terms(data).items():
        effect = judged(score, data.level)
        number = f"{SIGNED.text(score)} nats per token"
        statement = EFFECTS[effect].format(arm=arm, number=number, limit=_limit(score, data.level))
        return f"{growth.TERMS[terms]}, {statement}", effect
    return None


def _at_equal_steps(data: ReportData, arm: str) -> tuple[str, Effect] | None:
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
    return f"after as many steps, uniform's loss is {NUMBER.text(ratio)} times that of the {arm} schedule", effect


def baseline(data: ReportData) -> Verdict | None:
    """Return whether uniform training ends below the bigram baseline; None without a baseline.

    Supported if its interval is below, contradicted if above, inconclusive otherwise.
    """
    own, null = growth.held_out(data, growth.UNIFORM), growth.token_pairs(data)
    if own is None or null is None:
        return None
    low, high = (own.value if bound is None else bound for bound in (own.low, own.high))
    if high < null.value:
        return Verdict.SUPPORTED
    return Verdict.CONTRADICTED if low > null.value else Verdict.INCONCLUSIVE


def budget_shares(data: ReportData) -> dict[tuple[str, int], float]:
    """Map (variant, seed), if compared at equal FLOPs, to its FLOPs as a share of uniform's with the same seed."""
    base = growth.by_seed(data, TRAINING, "flops", growth.UNIFORM)
    return {
        (arm, seed): own.value / base[seed].value
        for arm in growth.arms(data)
        if growth.against(data, growth.Training(arm)) is not None
        for seed, own in sorted(growth.by_seed(data, TRAINING, "flops", growth.Training(arm)).items())
        if seed in base and base[seed].value > 0.0
    }


def step_errors(data: ReportData) -> dict[tuple[str, str], float]:
    """(Arm, phase) to the measured time of its step over the predicted one, minus one."""
    errors: dict[tuple[str, str], float] = {}
    for arm in growth.arms(data):
        predicted = growth.step_shares(data, arm, PREDICTED)
        for phase, score in growth.step_shares(data, arm, MEASURED).items():
            if phase in predicted and predicted[phase].value > 0.0:
                errors[arm, phase.name] = score.value / predicted[phase].value - 1.0
    return errors


def _on_terms(data: ReportData) -> dict[str, Score]:
    arm = growth.planned(data)
    rows = {
        terms: None if arm is None else growth.against(data, growth.Training(arm), terms=terms)
        for terms in growth.TERMS
    }
    return {terms: row for terms, row in rows.items() if row is not None}


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


def _terms(data: ReportData) -> Finding | None:
    scores = _on_terms(data)
    if not scores:
        return None
    effects = {terms: judged(score, data.level) for terms, score in scores.items()}
    clauses = []
    for terms, score in scores.items():
        limit = _limit(score, data.level) if effects[terms] == "open" else ""
        clauses.append(f"{growth.TERMS[terms]} {OUTCOMES[effects[terms]]}{limit}, {SIGNED.text(score)}")
    absent = [growth.TERMS[terms] for terms in growth.TERMS if terms not in scores]
    clauses += [f"not compared {listed(absent)}"] if absent else []
    question = f"Is {growth.planned(data)} better than {UNIFORM_TRAINING}?"
    return Finding(question, sentence("; ".join(clauses)), firmness(next(iter(effects.values()))))


def _learned(data: ReportData) -> Finding | None:
    state = baseline(data)
    if state is None:
        return None
    words, ending = BASELINES[state]
    uniform, pairs = NUMBER.text(growth.held_out(data, growth.UNIFORM)), NUMBER.text(growth.token_pairs(data))
    answer = f"{words} It ends at {uniform} nats per token, a table of token pairs counted on the same text at {pairs}"
    return Finding("Did uniform training learn what needs layers?", f"{answer}{ending}.", state)


def _tuned(data: ReportData) -> Finding | None:
    swept = growth.tunings(data)
    if not swept:
        return None
    answer = "; ".join(_tuning(tuning) + _afterwards(data, tuning) for tuning in swept)
    several = any(score.low is not None for tuning in swept for score in tuning.losses.values())
    who = "Several seeds chose" if several else "One seed chose, so no interval"
    return Finding("Was the learning rate tuned?", f"{answer}. {who}.")


def _tuning(tuning: growth.Tuning) -> str:
    tried = listed([f"{rate:g}" for rate in tuning.losses])
    beyond = ", the end of those tried: a better one may lie beyond" if tuning.at_end else ""
    return f"{tuning.arm} took {tuning.chosen:g} of {tried}{beyond}"


def _afterwards(data: ReportData, tuning: growth.Tuning) -> str:
    training = growth.Training(tuning.arm)
    noted = (growth.losses(data, training, seed) for seed in growth.seeds(data, training))
    ends = [list(by_step.values())[-1] for by_step in noted if by_step]
    tried = tuning.losses.get(tuning.chosen)
    if tried is None or not ends:
        return ""
    own = " to ".join(dict.fromkeys(tidy(end) for end in (min(ends), max(ends))))
    return f" (validation loss {tidy(tried.value)} in the sweep, {own} afterwards)"


def _accounted(data: ReportData) -> Finding | None:
    answer = " ".join((*_budget(data), *_steps(data)))
    return Finding("Do the costs add up?", answer) if answer else None


def _budget(data: ReportData) -> Iterator[str]:
    off = {key: abs(share - 1.0) for key, share in budget_shares(data).items()}
    beyond = sorted({arm for (arm, _), by in off.items() if by > BUDGET_BAR})
    if beyond:
        yield (
            f"The FLOPs of {listed(beyond)} are up to {percent(max(off.values()))} off uniform's, beyond the"
            f" {100 * BUDGET_BAR:g} % allowed: not all arms have had one budget."
        )
    elif off:
        yield f"The FLOPs of every arm are within {percent(max(off.values()))} of uniform's."


def _steps(data: ReportData) -> Iterator[str]:
    errors = step_errors(data)
    if errors:
        (arm, phase), worst = max(errors.items(), key=lambda item: abs(item[1]))
        beyond = sum(abs(error) > STEP_BAR for error in errors.values())
        many = f"{beyond} of {counted(len(errors), 'phase')} beyond" if beyond else f"all {len(errors)} phases within"
        off = fixed(100.0 * worst, 1, signed=True)
        yield f"A step's time is off its prediction by {off} % at most ({arm}, {phase}), {many} {100 * STEP_BAR:g} %."


def _limit(score: Score, level: float) -> str:
    """Say what would have been detectable, or that only the correction over variants made it inconclusive.

    >>> _limit(Score("growth", "difference", 0.1, p=0.03, p_adjusted=0.2), 0.05)
    ' among so many arms (adjusted p 0.20)'
    """
    if score.p is not None and score.p < level:
        return f" among so many arms (adjusted p {adjusted_p(score)})"
    return "" if score.mde is None else f" above {tidy(score.mde)} nats"
