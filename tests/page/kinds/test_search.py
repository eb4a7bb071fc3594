"""A search: verdicts follow the rows, and every plan can be copied."""

from dataclasses import replace

import pytest

from layerwise.page import render, terminal_lines
from layerwise.page.marks import Scatter
from layerwise.studies.search.page import SEARCH_KIND, chosen, findings, front
from tools.golden.outputs import stored

RUN = stored("search-planted")


@pytest.mark.parametrize(("sign", "word", "chosen"), [(1, "worse", "better than"), (-1, "better", "worse than")])
def test_an_arm_is_what_its_difference_and_its_p_say(sign: int, word: str, chosen: str) -> None:
    rows = (replace(row, value=sign * row.value) if row.metric == "above_chosen" else row for row in RUN.scores)
    turned = replace(RUN, scores=tuple(rows))
    text = "\n".join(findings(turned))
    assert f"above the chosen plan, {word} (corrected p 0.010)" in text
    assert "above the chosen plan, inconclusive below 0.0700 nats (corrected p 0.60)" in text
    assert SEARCH_KIND.answer(turned).endswith(
        f"It is not distinguished from least skip effect; {chosen} Block Influence, random sets."
    )


@pytest.mark.parametrize(
    ("low", "words"), [(0.05, "the search flattered it"), (-0.05, "no sign of overfitting to the search text")]
)
def test_a_winners_curse_is_named_only_where_the_interval_says_so(low: float, words: str) -> None:
    rows = (replace(row, low=low) if row.metric == "gap" else row for row in RUN.scores)
    assert f"{words}." in "\n".join(findings(replace(RUN, scores=tuple(rows))))


@pytest.mark.parametrize(
    ("high", "words"),
    [
        (-0.001, "it gains 0.0200 [0.0010, 0.0400] nats"),
        (0.001, "it changes the loss by -0.0200 [-0.0400, +0.0010] nats"),
    ],
)
def test_a_gain_is_called_one_only_where_the_interval_excludes_a_loss(high: float, words: str) -> None:
    rows = (replace(row, value=-0.02, low=-0.04, high=high) if row.metric == "delta_nll" else row for row in RUN.scores)
    text = "\n".join(findings(replace(RUN, scores=tuple(rows)))).replace("\u2212", "-")
    assert words in text


@pytest.mark.parametrize(("half", "words"), [(0.005, "equal within 0.005 nats"), (0.0051, "inconclusive below")])
def test_an_arm_is_equal_only_where_its_interval_lies_within_the_margin(half: float, words: str) -> None:
    rows = (
        replace(row, value=0.001, low=-half, high=half, p=0.6, p_adjusted=0.6, mde=0.007)
        if row.metric == "above_chosen"
        else row
        for row in RUN.scores
    )
    arms = [each for each in findings(replace(RUN, scores=tuple(rows))) if "above the chosen plan" in each]
    assert arms
    assert all(words in each for each in arms)


def test_plans_are_selected_by_a_click_and_the_chosen_one_stands_in_a_command() -> None:
    assert 'user-select: all">0-2 5</code>' in render(RUN)
    assert 'Heal it: layerwise heal tiny --plan "0-2 5"' in terminal_lines(SEARCH_KIND, RUN)


def test_the_axis_shows_the_front_and_the_chosen_plan_however_much_a_rule_loses() -> None:
    shown = {str(chosen(RUN).plan), *front(RUN, "layers"), *front(RUN, "bytes")}
    far = (
        replace(row, value=100.0) if row.metric == "delta_nll" and row.plan not in shown else row for row in RUN.scores
    )
    (mark,) = (part for part in SEARCH_KIND.sections[0].parts if isinstance(part, Scatter))
    axes = [
        figure.layout["yaxis"]["range"]
        for data in (RUN, replace(RUN, scores=tuple(far)))
        for figure in next(iter(mark.pictures(data))).variants.values()
    ]
    assert all(axis == axes[0] for axis in axes)
    bounds = [
        row.high for row in RUN.scores if row.metric == "delta_nll" and row.plan in shown and row.high is not None
    ]
    assert max(bounds) < axes[0][1] < 1.5 * max(bounds)


def test_a_search_that_was_stopped_says_so() -> None:
    left = replace(RUN, scores=tuple(RUN.rows.where(measure="latency")))
    assert "no plan was chosen yet" in render(left)
    assert list(findings(left)) == []


def test_a_plan_over_several_models_is_saved_with_all_of_them_and_not_healed() -> None:
    def following(plan: str) -> list[str]:
        rows = (replace(row, plan=plan) if row.metric == "chosen" else row for row in RUN.scores)
        manifest = {**RUN.manifest, "experiment": {"source": ["other"]}}
        return [str(each) for each in SEARCH_KIND.following(replace(RUN, scores=tuple(rows), manifest=manifest))]

    assert following("0 b:1") == ['Save it: layerwise save tiny other --plan "0 b:1" --output FOLDER']
    assert following("Q4_0:0 1") == ['For llama-quantize: layerwise plan "Q4_0:0 1" --to tensor-types']
    assert following("0 1")[0] == 'Heal it: layerwise heal tiny --plan "0 1"'
