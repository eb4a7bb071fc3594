"""Whether a comparison of schedules was a fair one: did the baseline learn, were both sides tuned, were budgets kept.

None of this is a result. It is what a reader must know before believing one: a side whose learning rate was chosen at
the end of those tried may be better than it looks, and an arm that spent more than uniform was not compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.finding import Finding, Number, State
from layerwise.report.growth.learning_rates import Tuning, tunings
from layerwise.report.growth.lookup import HELD_OUT, TEST, TRAINING, UNIFORM, GrowthScores, PhaseSteps
from layerwise.report.growth.training_cost import step_shares
from layerwise.report.page.number_format import between, fixed, percent, tidy
from layerwise.report.page.wording import counted, listed

BUDGET_BAR, STEP_BAR = 0.01, 0.15
"""How far FLOPs may be from uniform's, and the time of a step from its prediction."""

_BASELINES: dict[State, tuple[str, str]] = {
    "resolved": ("Yes.", ""),
    "unresolved": ("Not beyond its seeds.", "; what is gained on it may be gained by letting layers rest"),
    "described": ("No.", ", which needs no layers: any schedule may win that lets them rest"),
}


def fairness(run: GrowthScores) -> tuple[Finding, ...]:
    """What was tuned and what was spent, as far as the rows say."""
    return (*_learned(run), *_tuned(run), *_accounted(run))


def baseline(run: GrowthScores) -> State | None:
    """Whether uniform training ends below a table of token pairs: `resolved` where it does with its interval,
    `unresolved` where it does not show, `described` where it ends above it; `None` where nobody counted a table."""
    own, null = run.of_arm(HELD_OUT, "nll", UNIFORM, TEST), run.null
    if own is None or null is None:
        return None
    low, high = (own.value if bound is None else bound for bound in (own.low, own.high))
    if high < null.value:
        return "resolved"
    return "described" if low > null.value else "unresolved"


def _learned(run: GrowthScores) -> Iterator[Finding]:
    """Whether there is a baseline: what a table of token pairs loses needs no layers at all."""
    state, own, null = baseline(run), run.of_arm(HELD_OUT, "nll", UNIFORM, TEST), run.null
    if state is None or own is None or null is None:
        return
    words, ending = _BASELINES[state]
    shown = (Number(between(score.value, score.low, score.high)) for score in (own, null))
    answer = (
        f"{words} It ends at ",
        next(shown),
        " nats per token, a table of token pairs counted on the same text at ",
    )
    yield Finding("Did uniform training learn what needs layers?", (*answer, next(shown), f"{ending}."), state)


def _tuned(run: GrowthScores) -> Iterator[Finding]:
    """Which learning rates were tried and chosen, what came of them, and whether a better one may lie beyond."""
    swept = tunings(run)
    if swept:
        answer = "; ".join(_tuning(tuning) + _afterwards(run, tuning) for tuning in swept)
        several = any(score.low is not None for tuning in swept for score in tuning.losses.values())
        who = "Several seeds chose" if several else "One seed chose, so no interval"
        yield Finding("Was the learning rate tuned?", (f"{answer}. {who}.",), "described")


def _tuning(tuning: Tuning) -> str:
    tried = [f"{rate:g}" for rate in tuning.losses]
    if tuning.chosen is None:
        return f"{tuning.arm} tried {listed(tried)} and none is marked as chosen"
    beyond = ", the end of those tried: a better one may lie beyond" if tuning.at_end else ""
    worse = "" if tuning.is_least or not tried else ", which had not the least loss"
    return f"{tuning.arm} took {tuning.chosen:g} of {listed(tried)}{beyond}{worse}"


def _afterwards(run: GrowthScores, tuning: Tuning) -> str:
    """What the sweep reached with the chosen rate, and the arm's own seeds: a lucky seed may have chosen."""
    ends = [
        list(losses.values())[-1]
        for seed in run.seeds.get(tuning.arm, ())
        if (losses := run.losses(f"{tuning.arm}/{seed}"))
    ]
    tried = tuning.losses.get(tuning.chosen) if tuning.chosen is not None else None
    if tried is None or not ends:
        return ""
    own = " to ".join(dict.fromkeys(tidy(end) for end in (min(ends), max(ends))))
    return f" (validation loss {tidy(tried.value)} in the sweep, {own} afterwards)"


def _accounted(run: GrowthScores) -> Iterator[Finding]:
    """Whether the arms had equal FLOPs, and whether a step took the time that was predicted."""
    answer = [sentence for sentence in (_budget(run), _steps(run)) if sentence]
    if answer:
        yield Finding("Do the costs add up?", (" ".join(answer),), "described")


def budget_shares(run: GrowthScores) -> dict[str, float]:
    """Training (`ARM/SEED`) to its FLOPs as a share of those of uniform with the same seed.

    Only arms that were compared at equal FLOPs were given that budget.
    """
    shares: dict[str, float] = {}
    for arm in run.arms:
        own, base = (run.by_seed(TRAINING, "flops", name) for name in (arm, UNIFORM))
        if run.against(arm) is not None:
            both = {seed: (own[seed].value, base[seed].value) for seed in own if seed in base}
            shares |= {f"{arm}/{seed}": spent / budget for seed, (spent, budget) in both.items() if budget > 0.0}
    return shares


def step_errors(run: GrowthScores) -> dict[tuple[str, PhaseSteps], float]:
    """(Arm, phase) to the measured time of its step over the predicted one, minus one."""
    errors: dict[tuple[str, PhaseSteps], float] = {}
    for arm in run.arms:
        measured, predicted = (step_shares(run, arm, metric) for metric in ("measured", "predicted"))
        errors |= {
            (arm, phase): score.value / predicted[phase].value - 1.0
            for phase, score in measured.items()
            if phase in predicted and predicted[phase].value > 0.0
        }
    return errors


def _budget(run: GrowthScores) -> str:
    off = {name: abs(share - 1.0) for name, share in budget_shares(run).items()}
    if not off:
        return ""
    beyond = sorted({name.rpartition("/")[0] for name, by in off.items() if by > BUDGET_BAR})
    if beyond:
        return (
            f"The FLOPs of {listed(beyond)} are up to {percent(max(off.values()))} off uniform's, beyond the"
            f" {100 * BUDGET_BAR:g} % allowed: not all arms have had one budget."
        )
    return f"The FLOPs of every arm are within {percent(max(off.values()))} of uniform's."


def _steps(run: GrowthScores) -> str:
    errors = step_errors(run)
    if not errors:
        return ""
    (arm, phase), worst = max(errors.items(), key=lambda item: abs(item[1]))
    beyond = sum(abs(error) > STEP_BAR for error in errors.values())
    many = f"{beyond} of {counted(len(errors), 'phase')} beyond" if beyond else f"all {len(errors)} phases within"
    off = fixed(100.0 * worst, 1, signed=True)
    return f"A step's time is off its prediction by {off} % at most ({arm}, {phase.name}), {many} {100 * STEP_BAR:g} %."
