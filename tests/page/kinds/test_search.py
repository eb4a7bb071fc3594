"""The page of a search: verdicts follow the rows, and every plan can be copied."""

from dataclasses import replace

import pytest

from layerwise.page import render, terminal_lines
from layerwise.studies.search.page import SEARCH_KIND, write_findings
from tools.golden.outputs import stored

RUN = stored("search-planted")


@pytest.mark.parametrize(("sign", "word", "chosen"), [(1, "worse", "lower"), (-1, "better", "higher")])
def test_the_verdict_of_a_control_follows_its_difference_and_p(sign: int, word: str, chosen: str) -> None:
    rows = (replace(row, value=sign * row.value) if row.metric == "above_chosen" else row for row in RUN.scores)
    turned = replace(RUN, scores=tuple(rows))
    text = "\n".join(write_findings(turned))
    assert f"above that of the selected plan, which is {word} (adjusted p 0.010)" in text
    limit = "inconclusive (adjusted p 0.60), because this text can only detect differences above 0.0700 nats/token"
    assert f"above that of the selected plan, which is {limit}" in text
    assert SEARCH_KIND.answer(turned).endswith(
        f"It has a {chosen} loss than the controls “Block Influence” and “random plans”. "
        "The text is too short to separate it from the control “smallest skip effect”."
    )


@pytest.mark.parametrize(
    ("low", "words"), [(0.05, "overfitting to the search text"), (-0.05, "no sign of overfitting to the search text")]
)
def test_overfitting_is_reported_only_if_the_gap_excludes_zero(low: float, words: str) -> None:
    rows = (replace(row, low=low) if row.metric == "gap" else row for row in RUN.scores)
    assert f"{words}." in "\n".join(write_findings(replace(RUN, scores=tuple(rows))))


@pytest.mark.parametrize(
    ("high", "words"),
    [
        (-0.001, "it gains 0.0200 [0.0010, 0.0400] nats"),
        (0.001, "it changes the loss by -0.0200 [-0.0400, +0.0010] nats"),
    ],
)
def test_a_gain_is_reported_only_if_the_interval_excludes_a_loss(high: float, words: str) -> None:
    rows = (replace(row, value=-0.02, low=-0.04, high=high) if row.metric == "delta_nll" else row for row in RUN.scores)
    text = "\n".join(write_findings(replace(RUN, scores=tuple(rows)))).replace("\u2212", "-")
    assert words in text


@pytest.mark.parametrize(("half", "words"), [(0.005, "equal within 0.005 nats"), (0.0051, "inconclusive (")])
def test_a_control_is_equal_only_if_its_interval_is_within_the_margin(half: float, words: str) -> None:
    rows = (
        replace(row, value=0.001, low=-half, high=half, p=0.6, p_adjusted=0.6, mde=0.007)
        if row.metric == "above_chosen"
        else row
        for row in RUN.scores
    )
    controls = [
        each for each in write_findings(replace(RUN, scores=tuple(rows))) if "above that of the selected plan" in each
    ]
    assert controls
    assert all(words in each for each in controls)


def test_plans_can_be_copied_and_the_selected_one_is_in_a_command() -> None:
    assert 'user-select: all">0-2 5</code>' in render(RUN)
    assert 'Heal it: layerwise heal tiny --plan "0-2 5"' in terminal_lines(SEARCH_KIND, RUN)


def test_an_interrupted_search_has_no_findings() -> None:
    left = replace(RUN, scores=tuple(RUN.rows.where(measure="latency")))
    assert "no plan has been selected yet" in render(left)
    assert list(write_findings(left)) == []


def test_next_commands_follow_the_sources_of_the_plan() -> None:
    def following(plan: str) -> list[str]:
        rows = (replace(row, plan=plan) if row.metric == "chosen" else row for row in RUN.scores)
        manifest = {**RUN.manifest, "experiment": {"source": ["other"]}}
        return [str(each) for each in SEARCH_KIND.following(replace(RUN, scores=tuple(rows), manifest=manifest))]

    assert following("0 b:1") == ['Save it: layerwise save tiny other --plan "0 b:1" --output FOLDER']
    assert following("Q4_0:0 1") == ['For llama-quantize: layerwise plan "Q4_0:0 1" --to tensor-types']
    assert following("0 1")[0] == 'Heal it: layerwise heal tiny --plan "0 1"'
