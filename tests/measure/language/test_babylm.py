from dataclasses import replace

import pytest

from layerwise.data.suites.minimal_pairs import PHENOMENA
from layerwise.measure.language.babylm import FILES, GLUE, MSGS, aggregate, babylm_rows
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BABYLM, PARADIGM
from row_names import named

OF = {paradigm: name for name, paradigms in PHENOMENA.items() for paradigm in paradigms}
SUPPLEMENT = ("hypernym", "qa_congruence_easy", "qa_congruence_tricky", "subject_aux_inversion", "turn_taking")


@pytest.mark.parametrize(
    ("blimp", "glue", "msgs", "published"),
    [(75.8, 73.7, 29.4, 65.9), (82.8, 78.3, 47.2, 74.3), (72.4, 70.6, 17.2, 60.8)],
    ids=["ELC-BERT strict-small", "ELC-BERT strict", "MLSM strict-small"],
)
def test_aggregates_match_the_published_ones(blimp: float, glue: float, msgs: float, published: float) -> None:
    assert aggregate({"blimp": blimp, "glue": glue, "msgs": msgs}) == pytest.approx(published, abs=0.05)


def paradigm(suite: str, name: str, value: float, documents: int, variant: str = "m", seed: int = 0) -> Score:
    of = {"task": name, "kind": PARADIGM, "variant": variant, "seed": seed}
    return Score(suite, "accuracy", value, documents=documents, **of)


def whole(variant: str, seed: int, blimp: float, glue: float, msgs: float) -> list[Score]:
    rows = [paradigm("blimp", name, blimp, 1000, variant, seed) for name in OF]
    rows += [paradigm("supplement", name, blimp, 80, variant, seed) for name in SUPPLEMENT]
    for name, metric in GLUE.items():
        rows.append(Score("glue", metric, glue, task=name, variant=variant, seed=seed))
        rows.append(
            Score("glue", "accuracy" if metric != "accuracy" else "f1", 0.0, task=name, variant=variant, seed=seed)
        )
    for at, name in enumerate(MSGS):
        task = f"{'control' if at < 5 else 'ambiguous'} {name}"
        rows.append(Score("msgs", "mcc", msgs, task=task, variant=variant, seed=seed))
    return [*rows, *(replace(row, value=0.0, tuning_seed=0) for row in rows)]


def found(rows: list[Score]) -> dict[tuple[str, str, str], float]:
    return {(named(row), row.task, row.metric): row.value for row in babylm_rows(rows)}


def test_glue_metrics_match_babylm() -> None:
    assert len(GLUE) == FILES["glue"]
    assert {name: metric for name, metric in GLUE.items() if metric != "accuracy"} == {
        "cola": "mcc",
        "mrpc": "f1",
        "qqp": "f1",
    }


def test_complete_run_has_every_file_and_variant_means() -> None:
    rows = found([*whole("elc", 0, 0.758, 0.737, 0.294), *whole("elc", 1, 0.738, 0.737, 0.294)])
    assert {part: rows["elc/0", part, "files"] for part in FILES} == FILES
    assert rows["elc/0", "all", "aggregate"] == pytest.approx(65.89)
    assert rows["elc", "all", "aggregate"] == pytest.approx(65.39)
    variant = next(
        row
        for row in babylm_rows([*whole("a", 0, 0.5, 0.5, 0.1), *whole("a", 1, 0.6, 0.5, 0.1)])
        if (named(row), row.metric) == ("a", "aggregate")
    )
    assert variant.low is not None
    assert variant.measure == BABYLM


def test_files_are_weighted_equally() -> None:
    rows = [
        paradigm("blimp", "ellipsis_n_bar_1", 1.0, 10),
        paradigm("blimp", "ellipsis_n_bar_2", 0.0, 30),
        paradigm("blimp", "animate_subject_passive", 0.5, 10),
        paradigm("blimp", "causative", 1.0, 10),
    ]
    values = found(rows)
    assert (values["m/0", "blimp", "part"], values["m/0", "blimp", "files"]) == (50.0, 2.0), "s-selection is merged"
    fewer = [replace(row, seed=1, documents=5) for row in rows]
    examples = {named(row): row.documents for row in babylm_rows([*rows, *fewer]) if row.metric == "part"}
    assert examples == {"m/0": 60, "m/1": 20, "m": 20}
    assert ("m/0", "all", "aggregate") not in values, "no aggregate without GLUE and MSGS"


def test_other_suites_are_excluded() -> None:
    assert (
        found(
            [
                paradigm("pairs", "x", 1.0, 1),
                Score("msgs-ours", "mcc", 1.0, task="control main_verb", variant="m", seed=0),
            ]
        )
        == {}
    )
