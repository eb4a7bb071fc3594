"""The findings state what was planted and measured, and nothing else."""

from dataclasses import replace

from layerwise.page import ReportData
from layerwise.page.derived.curves import read_single_changes
from layerwise.studies.sweep.findings import NO_INTERVALS, list_findings
from page import synthetic
from page.planted import without_intervals


def found(data: ReportData) -> dict[str, tuple[str, str]]:
    return {finding.question: (finding.verdict, finding.answer) for finding in list_findings(data)}


RANKING = "Which change hurts least?"
LAYERS = "Which layer matters most, and which least?"
ZONES = "Do the similarity zones survive without the sink token?"


def widened(data: ReportData, times: float) -> ReportData:
    wider = (
        score
        if score.low is None or score.high is None
        else replace(
            score,
            low=score.value - times * (score.value - score.low),
            high=score.value + times * (score.high - score.value),
            p=0.9,
            p_adjusted=1.0,
        )
        for score in data.scores
    )
    return replace(data, scores=tuple(wider))


def of_layers(*shown: int, adjusted: float = 0.2, low: float = 6.7) -> str:
    run = synthetic.run(6, ("leave_one_out",))
    plans = {row.plan for row in read_single_changes(run) if row.layer in shown}
    scores = [
        replace(score, value=7.6, low=low, high=8.5, p=adjusted / 6, p_adjusted=adjusted, mde=2.29)
        for score in run.scores
        if score.plan in plans
    ]
    state, text = found(replace(run, scores=tuple(scores)))[LAYERS]
    assert (state == "supported") == (adjusted < 0.05 and len(shown) == 6)
    return text


def test_answers_agree_with_their_intervals() -> None:
    text = of_layers(*range(6))
    assert "could have been missed" not in text
    assert text.endswith("none of the 6 layers has a significant effect, even where the interval excludes zero.")
    assert of_layers(*range(6), low=-0.1).endswith(
        "After correction for 6 comparisons, none of the 6 layers has a significant effect; more than 1,000 times as"
        " much text would be needed to detect an effect of 0.01 nats/token."
    )
    assert of_layers(*range(6), adjusted=0.01).endswith(
        "The effects of all 6 layers differ significantly from zero after correction."
    )


def test_a_small_run_is_inconclusive() -> None:
    told = found(widened(synthetic.run(12), 60.0))
    assert {state for question, (state, _) in told.items() if question != ZONES} == {"inconclusive"}
    assert "No two neighbors in this ranking differ significantly (5 comparisons)." in told[RANKING][1]


def test_rows_without_intervals_have_no_verdict() -> None:
    told = found(without_intervals(synthetic.run(12)))
    assert set(told.values()) == {(None, NO_INTERVALS)}
    assert set(told) == {RANKING, LAYERS, ZONES}


def cosines(data: ReportData, half: float) -> ReportData:
    bounded = (
        replace(score, low=score.value - half, high=score.value + half) if score.measure == "similarity" else score
        for score in data.scores
    )
    return replace(data, scores=tuple(bounded))


def test_zones_depend_on_the_intervals_of_cosines() -> None:
    state, text = found(cosines(synthetic.run(12), 0.0001))[ZONES]
    assert state == "supported"
    assert text.startswith("They mostly vanish: the cosine contrast of the clearest zone, states 3–10 of 12, is ")
    assert "without the sink token and 0.597 [" in text
    assert text.count("[") == 2
    state, text = found(cosines(synthetic.run(12), 0.2))[ZONES]
    assert state == "inconclusive"
    assert text.startswith("Inconclusive: ")


def test_zones_within_their_null_are_no_finding() -> None:
    run = cosines(synthetic.run(12), 0.0001)

    def with_null(share: float) -> ReportData:
        alike = [score for score in run.scores if score.metric == "cosine"]
        null = (replace(score, metric="cosine_null", value=share * score.value) for score in alike)
        return replace(run, scores=(*run.scores, *null))

    assert "(tokens of different documents: 0.299)" in found(with_null(0.5))[ZONES][1]
    assert ZONES not in found(with_null(1.0))


def test_strategies_with_equal_plans_are_ranked_once() -> None:
    run = synthetic.run(5)
    reverse = next(record for record in run.plans if (record.strategy, record.affected) == ("reverse", 2))
    draws = tuple(replace(reverse, strategy="random", draw=draw) for draw in range(3))
    plans = (*run.plans, *draws)
    rows = synthetic.compared_strategies(5, plans, tuple(synthetic.TASKS))
    told = found(replace(run, plans=plans, scores=(*run.scores, *rows)))
    assert "With 2 of 5 layers affected" in told[RANKING][1]
    assert "nats/token), reverse, parallel, skip and middle repeat (costs " in told[RANKING][1]
    assert told[RANKING][1].endswith("All neighbors in the ranking differ significantly (4 comparisons).")
    assert not any("random order" in text for _, text in told.values())
