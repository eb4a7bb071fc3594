"""The model card of a checkpoint states only what the folder or a row contains."""

import json
from pathlib import Path

import pytest
from huggingface_hub import EvalResult, ModelCard

from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.checkpoint.card import CardTable, is_hub_id, read_metadata, write_card
from layerwise.errors import CheckpointError
from layerwise.stack import Stack, load

CARD = "---\nlicense: mit\nlanguage: en\npipeline_tag: text-generation\nbase_model: org/root\n---\n# It\n"


def folder_of(home: Path, name: str, card: str | None, seed: int = 0) -> Path:
    tiny_llama(4, seed=seed).save_pretrained(home / name)
    if card is not None:
        (home / name / "README.md").write_text(card)
    return home / name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("cards")
    one, two = folder_of(home, "one", CARD), folder_of(home, "two", "no metadata", seed=1)
    save(load(one), "0-2 2", home / "deep")
    save(load(one), "0 2-3", home / "pruned")
    save(Stack.with_sources({"a": load(one), "b": load(two)}), "a:0-1 b:2", home / "merged")
    return home


def text_of(folder: Path, *tables: CardTable) -> str:
    return write_card(folder, name="it", command="layerwise save x", tables=tables)


def test_the_hub_reads_its_metadata(home: Path) -> None:
    card = ModelCard(text_of(home / "pruned"))
    assert card.data.to_dict() == {
        "base_model": ["org/root"],
        "license": "mit",
        "language": "en",
        "pipeline_tag": "text-generation",
        "library_name": "transformers",
        "tags": ["layerwise", "pruned"],
    }
    assert ModelCard(text_of(home / "deep")).data.tags == ["layerwise", "frankenmerge"]
    assert card.text.startswith(
        "\n# it\n\n3 layers of one (made of [org/root](https://huggingface.co/org/root)), written as an ordinary "
    )
    assert "    0-2 2\n" in text_of(home / "deep")
    assert "- layers 0 to 2, in order\n- layer 2\n" in text_of(home / "deep")
    assert "- one (made of [org/root](https://huggingface.co/org/root)): mit\n" in card.text
    assert (home / "deep" / "README.md").read_text() == text_of(home / "deep")


def test_without_a_measurement_it_claims_nothing_and_with_one_it_has_its_rows(home: Path) -> None:
    assert "Nothing was measured for this card" in text_of(home / "pruned")
    result = EvalResult(
        "text-generation", "c", "c, all", "delta_nll", 0.5, metric_args={"confidence_interval_95": [0.25, 0.75]}
    )
    table = CardTable("Measured", ("On a text.",), ("what", "value"), (("this | plan", "0.5"),), (result,))
    text = text_of(home / "pruned", table)
    assert ModelCard(text).data.eval_results == [result]
    assert "Nothing was measured" not in text
    assert "### Measured\n\nOn a text.\n\n| what | value |\n| --- | --- |\n| this \\| plan | 0.5 |\n" in text


def test_a_license_that_no_card_states_is_not_known(home: Path) -> None:
    text = text_of(home / "merged")
    assert "- **The license of two is not known**: no card states one." in text
    data = ModelCard(text).data.to_dict()
    assert data["tags"] == ["layerwise", "merge"]
    assert data["base_model_relation"] == "merge"
    assert "license" not in data


def test_a_name_is_no_markup(home: Path, tmp_path: Path) -> None:
    strange = folder_of(tmp_path, "<b>[x](y)|", None)
    save(load(strange), "0 1", tmp_path / "m")
    text = text_of(tmp_path / "m")
    assert "<b>" not in text
    assert "[x]" not in text
    assert "&#60;b&#62;" in text


@pytest.mark.parametrize("content", [None, "[]", '{"plan": "0"}', "no JSON"])
def test_a_folder_that_layerwise_did_not_write_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(CheckpointError, match="create it with layerwise save"):
        text_of(tmp_path)


def test_the_card_states_what_was_proved(home: Path, tmp_path: Path) -> None:
    record = json.loads((home / "pruned" / "plan.json").read_text())
    assert "their logits are equal to those of the plan" in text_of(home / "pruned")
    for gap, proof, expected in (
        (None, "keys", "no logits were compared"),
        (1e-6, "logits", "within 1e-06 of the size"),
    ):
        (tmp_path / "plan.json").write_text(json.dumps(record | {"gap": gap, "proof": proof, "weights": {}}))
        assert expected in text_of(tmp_path)


def test_ids_of_the_hub_are_told_from_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "here").mkdir()
    assert [text for text in ("org/name", "gpt2", "org/here", "/a/b", "a/b/c", "demo") if is_hub_id(text)] == [
        "org/name",
        "gpt2",
    ]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert read_metadata("org/name-that-is-not-there") == {"base_model": ["org/name-that-is-not-there"]}
