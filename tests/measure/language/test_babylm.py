"""The aggregate of BabyLM: the winners' follow from their parts, and parts are means over the right files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.data.suites.blimp import PHENOMENA
from layerwise.measure.language.babylm import BABYLM, FILES, GLUE, MSGS, aggregate, babylm_rows
from layerwise.results.rows import Score

OF = {paradigm: name for name, paradigms in PHENOMENA.items() for paradigm in paradigms}
SUPPLEMENT = ("hypernym", "qa_congruence_easy", "qa_congruence_tricky", "subject_aux_inversion", "turn_taking")


@pytest.mark.parametrize(
    ("blimp", "glue", "msgs", "published"),
    [(75.8, 73.7, 29.4, 65.9), (82.8, 78.3, 47.2, 74.3), (72.4, 70.6, 17.2, 60.8)],
    ids=["ELC-BERT strict-small", "ELC-BERT strict", "MLSM strict-small"],
)
def test_published_aggregates_follow_from_their_parts(blimp: float, glue: float, msgs: float, published: float) -> None:
    assert aggregate({"blimp": blimp, "glue": glue, "msgs": msgs}) == pytest.approx(published, abs=0.05)


def whole(subject: str, blimp: float, glue: float, msgs: float) -> list[Score]:
    """Rows of every file of every part; those of other metrics and of fine-tunings are not to be counted."""
    rows = [Score("blimp", subject, f"paradigm:{name}", "accuracy", blimp, documents=1000) for name in OF]
    rows += [Score("supplement", subject, f"paradigm:{name}", "accuracy", blimp, documents=80) for name in SUPPLEMENT]
    for name in GLUE:
        metric = {"cola": "mcc", "mrpc": "f1", "qqp": "f1"}.get(name, "accuracy")
        rows.append(Score("glue", subject, name, metric, glue))
        rows.append(Score("glue", subject, name, "accuracy" if metric != "accuracy" else "f1", 0.0))
    rows += [
        Score("msgs", subject, f"{'control' if at < 5 else 'ambiguous'} {name}", "mcc", msgs)
        for at, name in enumerate(MSGS)
    ]
    return [*rows, *(Score(row.measure, f"{subject}.0", row.task, row.metric, 0.0) for row in rows)]


def found(rows: list[Score]) -> dict[tuple[str, str, str], float]:
    return {(row.subject, row.task, row.metric): row.value for row in babylm_rows(rows, OF)}


def test_a_whole_run_has_every_file_and_arms_have_means() -> None:
    rows = found([*whole("elc/0", 0.758, 0.737, 0.294), *whole("elc/1", 0.738, 0.737, 0.294)])
    assert {part: rows["elc/0", part, "files"] for part in FILES} == FILES
    assert rows["elc/0", "all", "aggregate"] == pytest.approx(65.89)
    assert rows["elc", "all", "aggregate"] == pytest.approx(65.39)
    arm = next(row for row in babylm_rows([*whole("a/0", 0.5, 0.5, 0.1), *whole("a/1", 0.6, 0.5, 0.1)], OF)
               if (row.subject, row.metric) == ("a", "aggregate"))  # fmt: skip
    assert arm.low is not None
    assert arm.measure == BABYLM


def test_files_count_alike_and_pairs_within_a_file() -> None:
    rows = [
        Score("blimp", "m/0", "paradigm:ellipsis_n_bar_1", "accuracy", 1.0, documents=10),
        Score("blimp", "m/0", "paradigm:ellipsis_n_bar_2", "accuracy", 0.0, documents=30),
        Score("blimp", "m/0", "paradigm:animate_subject_passive", "accuracy", 0.5, documents=10),
        Score("blimp", "m/0", "paradigm:causative", "accuracy", 1.0, documents=10),
    ]
    values = found(rows)
    assert (values["m/0", "blimp", "part"], values["m/0", "blimp", "files"]) == (50.0, 2.0), "s-selection is merged"
    fewer = [replace(row, subject="m/1", documents=5) for row in rows]
    examples = {row.subject: row.documents for row in babylm_rows([*rows, *fewer], OF) if row.metric == "part"}
    assert examples == {"m/0": 60, "m/1": 20, "m": 20}
    assert ("m/0", "all", "aggregate") not in values, "no aggregate without GLUE and MSGS"


def test_suites_of_our_own_are_no_part_of_it() -> None:
    assert (
        found(
            [
                Score("pairs", "m/0", "paradigm:x", "accuracy", 1.0),
                Score("msgs-ours", "m/0", "control main_verb", "mcc", 1.0),
            ]
        )
        == {}
    )
