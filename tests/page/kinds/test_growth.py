"""Growth verdicts follow the numbers; tests/golden/growth-planted and growth-variants freeze the texts."""

from dataclasses import replace

import pytest

from layerwise.page import ReportData
from layerwise.page.derived import growth
from layerwise.page.derived.growth import Tuning
from layerwise.results.rows import Score
from layerwise.runner.summary import summary
from layerwise.studies.train_growth.findings import describe_tuning, list_growth_findings, make_verdict
from layerwise.studies.train_growth.page import GROWTH_KIND
from page.planted import GROWTH, of, without

BETTER, WORSE, OPEN = (-0.05, 0.02), (0.05, 0.02), (0.005, 0.02)
MATTERS = "so it matters which layers train when"
NOT_SHOWN = "so the gain is not shown to depend on which layers train when."
NOTHING = "so nothing shows that it matters which layers train when."
WRONG_ROLES = "so its assignment of layers to phases is not the best."
LEARNED = "Does uniform training beat the bigram baseline?"
Two = tuple[float, float]


def difference(
    variant: str, against: str, value: float, half: float, terms: str = "flops", share: float | None = None
) -> Score:
    p = 0.01 if abs(value) > half else 0.4
    return Score(
        "growth",
        "difference",
        value,
        value - half,
        value + half,
        p,
        p_adjusted=p,
        mde=1.25 * half,
        variant=variant,
        against=against,
        unit=terms,
        share=share,
    )


def held_out(variant: str, value: float = 4.0, half: float | None = None, seed: int | None = 0) -> Score:
    bounds = () if half is None else (value - half, value + half)
    return Score("held_out", "nll", value, *bounds, variant=variant, seed=seed)


def rate(variant: str, amount: float, metric: str = "nll", value: float = 1.0) -> Score:
    return Score("rates", metric, value, variant=variant, learning_rate=amount)


def planned_study(uniform: Two, **controls: Two) -> ReportData:
    variant = "importance"
    rows = [held_out(name, seed=seed) for name in (variant, "uniform") for seed in range(3)]
    rows += [difference(variant, control, *numbers) for control, numbers in controls.items()]
    return of(*rows, difference(variant, "uniform", *uniform))


def answers(data: ReportData) -> dict[str, str]:
    return {finding.question: finding.answer for finding in list_growth_findings(data)}


def bare(*others: str) -> list[Score]:
    return [
        replace(difference("importance", other, -0.5, 0.1), low=None, high=None, p=None, p_adjusted=None)
        for other in others
    ]


CORRECTED = replace(difference("importance", "uniform", *BETTER), p=0.03, p_adjusted=0.2)
BOTH = ("permuted", "reversed")
VERDICTS: list[tuple[ReportData, str, str | None]] = [
    # less loss is better, more is worse, the rest inconclusive
    (
        planned_study(BETTER),
        "the importance schedule is better than uniform training, with a loss difference of −0.0500",
        "supported",
    ),
    (
        planned_study(WORSE),
        "the importance schedule is worse than uniform training, with a loss difference of +0.0500",
        "contradicted",
    ),
    (
        planned_study(OPEN),
        "the loss difference between the importance schedule and uniform training is inconclusive: ",
        "inconclusive",
    ),
    (planned_study(OPEN), "(minimum detectable effect 0.0250) over 3 seeds.", "inconclusive"),
    # layer roles matter only where every control is beaten
    *(
        (planned_study(uniform, **dict(zip((*BOTH, "random"), controls, strict=False))), words, state)
        for uniform, state, controls, words in (
            (BETTER, "supported", (BETTER, BETTER), f"{MATTERS}."),
            (BETTER, "supported", (OPEN, BETTER), NOT_SHOWN),
            (BETTER, "supported", (BETTER, OPEN), NOT_SHOWN),
            (BETTER, "supported", (BETTER, BETTER, OPEN), NOT_SHOWN),
            (BETTER, "supported", (WORSE, BETTER), WRONG_ROLES),
            (OPEN, "inconclusive", (OPEN, OPEN), NOTHING),
            (WORSE, "contradicted", (OPEN, BETTER), NOTHING),
            (OPEN, "inconclusive", (WORSE, WORSE), WRONG_ROLES),
            (OPEN, "inconclusive", (BETTER, BETTER), f"{MATTERS}, although it does not beat uniform training."),
        )
    ),
    (planned_study(BETTER, reversed=BETTER), f"{MATTERS}, although no permuted control was trained.", "supported"),
    (
        planned_study(BETTER),
        "No control was trained, so it is untested whether it matters which layers train when.",
        "supported",
    ),
    # differences need an interval; the corrected p decides
    (
        of(held_out("importance"), held_out("uniform"), *bare("uniform", "permuted")),
        "is −0.500 nats/token, without an interval over 1 seed. It is not distinguishably worse with its layer",
        None,
    ),
    (of(CORRECTED), "−0.0700, −0.0300] nats/token (adjusted p 0.20)", "inconclusive"),
]


@pytest.mark.parametrize(("data", "words", "state"), VERDICTS)
def test_the_verdict_follows_its_rows(data: ReportData, words: str, state: str | None) -> None:
    finding = make_verdict(data)
    assert words in finding.answer
    assert finding.verdict == state
    assert finding.answer.count(". ") == 1


@pytest.mark.parametrize(
    ("rows", "variant"),
    [
        ([difference("published", "uniform", *BETTER), difference("importance", "uniform", *WORSE)], "importance"),
        ([difference("importance", "uniform", *WORSE), difference("published", "permuted", *OPEN)], "published"),
        ([difference("mine", "uniform", *OPEN)], "mine"),
        ([difference("permuted", "uniform", *OPEN)], None),
        ([difference("published", "uniform", *OPEN, share=0.5)], None),
        ([held_out("importance")], None),
    ],
)
def test_the_verdict_is_on_the_variant_with_controls(rows: list[Score], variant: str | None) -> None:
    assert growth.planned(of(*rows)) == variant


@pytest.mark.parametrize(
    ("bounds", "state"),
    [((1.5, 2.5), "supported"), ((0.5, 0.9), "contradicted"), ((0.9, 1.1), "inconclusive"), ((None, None), None)],
)
def test_variants_with_equal_steps_only_are_compared_by_the_ratio_of_losses(
    bounds: tuple[float | None, float | None], state: str
) -> None:
    ratio = Score("growth", "loss_ratio", 1.0, *bounds, variant="mine", against="uniform", unit="tokens")
    finding = make_verdict(of(ratio, held_out("mine"), held_out("uniform")))
    assert finding.answer.startswith("After the same number of steps, the loss of uniform training is 1")
    assert finding.verdict == state


def ended(half: float, null: float) -> list[Score]:
    return [
        held_out("uniform", half=half, seed=None),
        Score("null", "nll", null, null - 0.02, null + 0.02, variant="bigrams"),
    ]


TRIED = [rate("a", 0.1, value=3.68), rate("a", 0.1, "chosen"), held_out("a")]
AT_END = [*TRIED, rate("a", 0.2, value=3.7)]
ANSWERS: list[tuple[list[Score], str, str]] = [
    (
        ended(0.1, 4.2),
        LEARNED,
        "Yes: uniform training ends at 4.00 [3.90, 4.10] nats/token, below the bigram baseline at 4.20",
    ),
    (ended(0.3, 4.2), LEARNED, "its seeds vary around the bigram baseline at"),
    (ended(0.1, 3.8), LEARNED, "No: uniform training ends at 4.00"),
]


@pytest.mark.parametrize(("rows", "question", "words"), ANSWERS)
def test_the_baseline_is_a_finding(rows: list[Score], question: str, words: str) -> None:
    assert words in answers(of(*rows))[question]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (TRIED, "The learning rate was tuned."),
        (
            AT_END,
            "Try more values of the learning rate of a, because its best value is at an end of the range that was"
            " tried.",
        ),
        (ended(0.1, 4.2), "The learning rate was not tuned, so the result may differ at another learning rate."),
    ],
)
def test_the_tuning_is_described(rows: list[Score], words: str) -> None:
    assert describe_tuning(of(*rows)).endswith(words)


@pytest.mark.parametrize(("chosen", "at_end"), [(1.0, True), (2.0, False), (3.0, True)])
def test_ends_of_the_searched_range_are_named(chosen: float, at_end: bool) -> None:
    losses = {each: rate("a", each) for each in (1.0, 2.0, 3.0)}
    assert Tuning("a", losses, chosen).at_end == at_end
    assert not Tuning("a", {1.0: losses[1.0]}, 1.0).at_end


def saving(metric: str, value: float, half: float | None = None, terms: str = "flops") -> Score:
    bounds = () if half is None else (value - half, value + half)
    return Score("growth", metric, value, *bounds, variant="mine", against="uniform", unit=terms)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([saving("saving", 0.25, 0.125)], "25.0 [12.5, 37.5] %"),
        ([saving("saving_at_most", 0.2), saving("never", 2)], "at most 20 % (2 seeds did not reach uniform's loss)"),
        ([saving("saving_at_most", -0.02), saving("never", 3)], "none (3 seeds did not reach uniform's loss)"),
        ([saving("saving_at_least", 0.4)], "at least 40 % (a seed reached uniform's loss before the first evaluation)"),
        ([saving("saving", 0.2)], "20 %"),
        ([], "–"),
    ],
)
def test_savings_have_an_interval_or_one_bound(rows: list[Score], words: str) -> None:
    assert growth.saving_text(of(*rows).rows) == words


def test_a_schedule_alone_is_not_compared() -> None:
    assert "layerwise run growth" in summary(without(GROWTH, "growth"))


def test_trainings_without_an_end_are_named() -> None:
    begun = Score("training", "train_loss", 4.0, variant="ramp", seed=7, step=10)
    banner = GROWTH_KIND.unfinished(of(*GROWTH.scores, begun))
    assert banner is not None
    assert "1 training run (ramp/7) is incomplete" in banner
    assert GROWTH_KIND.unfinished(GROWTH) is None
