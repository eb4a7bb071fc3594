"""From rows to sentences: whether a schedule gains on uniform training, and whether layer roles are what does it.

The verdict is one sentence, and claims no more than its intervals carry. A gain on uniform training alone does not say
that layers were given what they need: phases restart the rate of learning, freeze, and spend differently. What says it
is the control, the same schedule with the roles of its layers given to others. Only where the schedule is better than
each of its controls is the gain said to come from which layers train when. "Not resolvable" is a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from layerwise.report.evidence import Evidence
from layerwise.report.finding import Finding, Number, State
from layerwise.report.growth.comparison_checks import baseline, fairness
from layerwise.report.growth.learning_rates import tunings
from layerwise.report.growth.lookup import DIFFERENCE, GROWTH, TERMS, UNIFORM, GrowthScores
from layerwise.report.growth.tables import arm_rows, cost_rows, difference_rows, phase_rows, rate_rows
from layerwise.report.page.number_format import between, is_resolved, probability, tidy
from layerwise.report.page.plain_markdown import answered
from layerwise.report.page.wording import counted, listed
from layerwise.results.rows import Score

PERMUTED = "permuted"
CONTROLS: dict[str, str] = {
    PERMUTED: "its layer roles permuted",
    "reversed": "its layer roles reversed",
    "random": "its layers drawn at random",
}
"""The arms that are the planned schedule with its roles given to other layers, the one that decides first."""

PLANNED = ("importance", "published")
"""Which schedule the study is about, where no control tells."""

Effect = Literal["better", "worse", "open", "bare"]
STATES: dict[Effect, State] = {"better": "resolved", "worse": "resolved", "open": "unresolved", "bare": "described"}


def growth_findings(run: GrowthScores) -> tuple[Finding, ...]:
    """Every finding that the rows support, the verdict first; none for a run of another kind."""
    first = verdict(run)
    return (*(() if first is None else (first,)), *supporting_findings(run))


def supporting_findings(run: GrowthScores) -> tuple[Finding, ...]:
    """What stands under the verdict: the other terms, the other arms, and what tells whether the test was fair."""
    compared = (finding for finding in (_terms(run), _others(run)) if finding is not None)
    return (*compared, *fairness(run))


def growth_lines(run: GrowthScores) -> tuple[str, ...]:
    """The arms as a table, then a line for each finding, the verdict first: what the terminal shows."""
    rows = arm_rows(run, terms=("flops",), lengths=False)
    lines = (f"- {finding.question} {finding.text}" for finding in growth_findings(run))
    return (*rows.lines(), *lines)


def planned(run: GrowthScores) -> str | None:
    """The arm that the study is about: the one with controls, else the first of `PLANNED` that was compared."""
    compared = run.measured(GROWTH, DIFFERENCE)
    pairs = [subject.partition(" - ") for subject in compared]
    controlled = [arm for arm, _, other in pairs if other in CONTROLS]
    against = [arm for arm, _, other in pairs if other == UNIFORM and arm not in CONTROLS]
    preferred = [arm for arm in PLANNED if arm in against]
    return next(iter([*controlled, *preferred, *against]), None)


def judged(score: Score, level: float) -> Effect:
    """What an interval says of a difference in loss: less is better; `bare` where it has neither interval nor p."""
    if score.p is None and score.p_adjusted is None and score.low is None:
        return "bare"
    if not is_resolved(score, level):
        return "open"
    return "better" if score.value < 0.0 else "worse"


def lead_terms(run: GrowthScores, arm: str) -> str | None:
    """The terms that decide: the first of `TERMS` on which the arm was compared with uniform."""
    return next((terms for terms in TERMS if run.against(arm, terms=terms) is not None), None)


def verdict(run: GrowthScores) -> Finding | None:
    """The verdict in one sentence: against uniform, and against the same schedule with its layers in other roles."""
    arm = planned(run)
    terms = lead_terms(run, arm) if arm else None
    score = run.against(arm, terms=terms) if arm and terms else None
    if arm is None or terms is None or score is None:
        return None
    effect = judged(score, run.level)
    seeds = f" over {_seeds(run, arm)}"
    pieces = (
        f"{_upper(TERMS[terms])}, ",
        *_effect(arm, effect, score, run.level),
        seeds,
        *_roles(run, arm, effect),
        "" if tunings(run) else "; no learning rate was tuned, and another might turn this round",
        _unlearned(run),
        ".",
    )
    return Finding("Does training where layers need it help?", pieces, STATES[effect])


def _unlearned(run: GrowthScores) -> str:
    """What takes the verdict back: a baseline that a table of token pairs beats."""
    if baseline(run) in (None, "resolved"):
        return ""
    return "; but uniform training is not shown to beat a table of token pairs, so this says nothing of layers"


def _effect(arm: str, effect: Effect, score: Score, level: float) -> tuple[str, ...]:
    """The first half of the verdict, up to the number."""
    number = (Number(_signed(score)), " nats per token")
    if effect == "open":
        limit = _limit(score, level)
        return (f"no difference between the {arm} schedule and uniform training is resolvable{limit}: ", *number)
    if effect == "bare":
        return (f"the {arm} schedule differs from uniform training by ", *number, ", without an interval,")
    return (f"the {arm} schedule is {effect} than uniform training: ", *number)


def controls(run: GrowthScores, arm: str) -> dict[str, Score]:
    """Control to the loss of the schedule minus that of its control, at equal FLOPs, for those that were trained."""
    scores = {control: run.against(arm, control) for control in CONTROLS}
    return {control: score for control, score in scores.items() if score is not None}


def _roles(run: GrowthScores, arm: str, effect: Effect) -> Iterator[str]:
    """The second half of the verdict: the schedule against itself with its layers in other roles."""
    compared = controls(run, arm)
    if not compared:
        yield f"; {arm} was compared with no permuted or reversed control, so nothing is known of layer roles"
        return
    fates = {control: judged(score, run.level) for control, score in compared.items()}
    clauses: dict[Effect, str] = {
        "better": "better than",
        "worse": "worse than",
        "open": "not distinguishable from",
        "bare": "not distinguished, for want of an interval, from",
    }
    yield "; the schedule is "
    for at, fate in enumerate(dict.fromkeys(fates.values())):
        members = [control for control in compared if fates[control] == fate]
        yield f"{', and ' if at else ''}{clauses[fate]} itself with "
        for index, control in enumerate(members):
            yield f"{' or with ' if index else ''}{CONTROLS[control]}, "
            yield Number(_signed(compared[control]))
            yield "," if index < len(members) - 1 else ""
    yield f", {_conclusion(effect, fates)}"


def _conclusion(effect: Effect, fates: Mapping[str, Effect]) -> str:
    """What both halves say together of the roles of layers: they matter where every control is beaten, or else not."""
    if set(fates.values()) == {"better"}:
        conclusion = "so it matters which layers train when"
        conclusion += "" if PERMUTED in fates else f", as far as {listed([*fates])} can decide without permuted"
        return (
            conclusion
            if effect == "better"
            else f"{conclusion}, though that does not make it better than uniform training"
        )
    if "worse" in fates.values():
        return "so the roles that it gives the layers are not the right ones"
    if effect == "better":
        return "so the gain is not shown to come from which layers train when"
    return "so nothing shows that it matters which layers train when"


def _terms(run: GrowthScores) -> Finding | None:
    """The planned schedule on every term that it was compared on."""
    arm = planned(run)
    scores = {terms: score for terms in TERMS if arm and (score := run.against(arm, terms=terms)) is not None}
    if arm is None or not scores:
        return None
    pieces: list[str] = []
    for terms, score in scores.items():
        pieces += [f"{'; ' if pieces else ''}{TERMS[terms]} {_outcome(score, run.level)}, ", Number(_signed(score))]
    absent = [TERMS[terms] for terms in TERMS if terms not in scores]
    pieces.append(f"; not compared {listed(absent)}." if absent else ".")
    first = judged(next(iter(scores.values())), run.level)
    return Finding(f"Is {arm} better than {UNIFORM}?", (_upper(pieces[0]), *pieces[1:]), STATES[first])


def _others(run: GrowthScores) -> Finding | None:
    """The other schedules against uniform, at equal FLOPs."""
    main = planned(run)
    scores = {arm: score for arm in run.arms if arm != main and (score := run.against(arm)) is not None}
    if not scores:
        return None
    effects = {arm: judged(score, run.level) for arm, score in scores.items()}
    words: dict[Effect, str] = {
        "better": "better",
        "worse": "worse",
        "open": "not resolvable",
        "bare": "without an interval",
    }
    pieces: list[str] = []
    for effect, phrase in words.items():
        members = [arm for arm in scores if effects[arm] == effect]
        if members:
            pieces += [f"{'; ' if pieces else ''}{phrase}: ", *_listing(members, scores)]
    state: State = "resolved" if {"better", "worse"} & set(effects.values()) else "unresolved"
    state = "described" if set(effects.values()) == {"bare"} else state
    return Finding("And the other schedules, at equal FLOPs?", (_upper(pieces[0]), *pieces[1:], "."), state)


def _listing(arms: Iterable[str], scores: Mapping[str, Score]) -> Iterator[str]:
    for at, arm in enumerate(arms):
        yield f"{', ' if at else ''}{arm} "
        yield Number(_signed(scores[arm]))


def _outcome(score: Score, level: float) -> str:
    effect = judged(score, level)
    if effect == "open":
        return f"not resolvable{_limit(score, level)}"
    return "without an interval" if effect == "bare" else effect


def _seeds(run: GrowthScores, arm: str) -> str:
    return counted(min(len(run.seeds.get(name, ())) for name in (arm, UNIFORM)), "seed")


def _limit(score: Score, level: float) -> str:
    """What could have been seen; and where the arm alone would have been distinguished, that the number of arms
    decided.

    >>> _limit(Score("growth", "a - b", "flops", "difference", 0.1, p=0.03, p_adjusted=0.2), 0.05)
    ' among so many arms (adjusted p 0.20)'
    """
    if score.p is not None and score.p < level:
        return f" among so many arms (adjusted p {probability(score.p_adjusted)})"
    return "" if score.mde is None else f" above {tidy(score.mde)} nats"


def _signed(score: Score) -> str:
    return between(score.value, score.low, score.high, signed=True)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def growth_markdown(evidence: Evidence) -> Iterator[str]:
    """The findings, the schedules and their differences, and what they cost."""
    run = evidence.growth
    yield answered(growth_findings(run))
    yield arm_rows(run).section("Schedules compared")
    yield difference_rows(run).section("Every difference")
    yield phase_rows(run).section("Phases")
    yield rate_rows(run).section("Learning rates")
    yield cost_rows(run).section("Cost")
