"""The page of a search: every point is a plan that can be copied, and no arm is called worse than its rows say."""

from __future__ import annotations

from dataclasses import replace

import plotly.graph_objects as go

from layerwise.report import Evidence, ReportData, SearchScores, render, search_lines
from layerwise.report.page.groups import written
from layerwise.report.search.chapter import SEARCHED
from layerwise.report.search.tables import confirmed_table, front_table
from layerwise.results.rows import Score

CHOSEN, WHOLE = "0-2 5", "0-5"


def delta(plan: str, text: str, value: float, metric: str = "delta_nll") -> Score:
    bounds = (None, None) if text == "search" else (value - 0.05, value + 0.05)
    return Score("search", plan, text, metric, value, *bounds, documents=40, tokens=4000)


def above(arm: str, value: float, p: float, text: str = "report") -> Score:
    row = delta(arm, text, value, "above_chosen")
    return replace(row, p=p / 2, p_adjusted=p, mde=0.07)


def rows() -> list[Score]:
    plans = {WHOLE: 6.0, "0 1 3-5": 5.0, CHOSEN: 4.0, "2-5": 4.0, "0-3": 4.0}
    made = [Score("search", plan, unit, "price", 1e6 * price if unit == "bytes" else price)
            for plan, price in plans.items() for unit in ("layers", "bytes")]  # fmt: skip
    made += [delta(plan, "search", 0.1 * (6 - price)) for plan, price in plans.items() if plan != WHOLE]
    made += [delta(plan, "report", 0.15 * (6 - price)) for plan, price in plans.items() if plan != WHOLE]
    made += [delta(CHOSEN, "report", 0.3, "again"), delta(CHOSEN, "report", 0.1, "gap")]
    made += [
        Score("search", plan, unit, "front", 1.0) for plan in (WHOLE, "0 1 3-5", CHOSEN) for unit in ("layers", "bytes")
    ]
    made += [Score("search", CHOSEN, "layers=4", "chosen", 1.0)]
    arms = {"block_influence": "2-5", "deepest_keep_last": CHOSEN, "sweep_effect": "0-3"}
    made += [Score("search", plan, arm, "arm", 1.0) for arm, plan in arms.items()]
    made += [above("block_influence", 0.2, 0.01), above("sweep_effect", 0.01, 0.6), above("random", 1.5, 0.001)]
    made += [Score("search", "random", "report", "better", 0.05)]
    made += [Score("search", plan, "random", "arm", float(draw)) for draw, plan in enumerate(("2-5", "0-3"), start=1)]
    made += [
        Score("latency", name, "prefill, batch 1, context 8", "ms", 1.0) for name in ("0", "0.attn", "0.mlp", "rest")
    ]
    made += [Score("latency", CHOSEN, "prefill, batch 1, context 8", f"plan_{name}", value)
             for name, value in {"predicted": 2.0, "measured": 2.1}.items()]  # fmt: skip
    return made


def data(scores: list[Score]) -> ReportData:
    return ReportData(
        {"model": "tiny", "corpus": "texts", "documents": 40, "tokens": 4000, "depth": 6}, (), tuple(scores)
    )


def test_the_sentences_say_what_the_rows_resolve_and_no_more() -> None:
    text = "\n".join(search_lines(SearchScores.of(rows()), 0.05))
    assert "Chosen within layers=4: 0-2 5 (4 layers, 4.00 MB)" in text
    assert "a gap of +0.100 [+0.050, +0.150], the search flattered it" in text
    assert (
        "Block Influence, fresh text: +0.200 [+0.150, +0.250] above the chosen plan, worse (corrected p 0.010)" in text
    )
    assert "least skip effect, fresh text" in text
    assert "not resolvable below 0.0700 nats (corrected p 0.60)" in text
    assert "deepest, last kept: the same plan" in text
    assert "5 % of the sets lose less" in text
    assert "2.00 predicted, 2.10 measured (+5.0 %)" in text


def test_an_arm_that_loses_less_is_called_better() -> None:
    turned = [replace(row, value=-row.value) if row.metric == "above_chosen" else row for row in rows()]
    text = "\n".join(search_lines(SearchScores.of(turned), 0.05))
    assert "above the chosen plan, better (corrected p 0.010)" in text


def test_tables_have_every_plan_whole() -> None:
    run = SearchScores.of(rows())
    assert [row[0] for row in front_table(run, "layers").body] == [CHOSEN, "0 1 3-5", WHOLE]
    table = confirmed_table(run, 0.05)
    assert [row[0] for row in table.body] == [
        "chosen", "least skip effect", "Block Influence", "deepest, last kept", "random sets",
    ]  # fmt: skip
    assert {len(row) for row in table.body} == {len(table.head)}


def test_the_page_has_a_front_that_plotly_knows_and_plans_that_a_click_selects() -> None:
    evidence = Evidence.of(data(rows()))
    assert SEARCHED.present(evidence)
    (picture,) = (picture for chapter in written(evidence) for picture in chapter.pictures)
    assert set(picture.variants) == {(0,), (1,)}
    for figure in picture.variants.values():
        go.Figure(figure.payload())
        assert any(CHOSEN in hover for trace in figure.traces for hover in trace.get("text", ()))
    html = render(data(rows()))
    assert f'user-select: all">{CHOSEN}</code>' in html


def test_a_search_that_was_stopped_says_so() -> None:
    left = [row for row in rows() if row.measure == "latency"]
    assert "no plan was chosen yet" in (SEARCHED.unfinished(Evidence.of(data(left))) or "")
    assert search_lines(SearchScores.of(left), 0.05) == []
    render(data(left))
