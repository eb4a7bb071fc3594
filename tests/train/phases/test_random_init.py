"""Random weights that the seed decides, a digest of all there is, and configurations it cannot be of."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerBase, ViTConfig, set_seed

from layerwise.data.text.vocabulary import train_bytepair
from layerwise.errors import CheckpointError, DataError, ModelError
from layerwise.stack.checks.checkpoint_files import open_config
from layerwise.train.phases.random_init import has_weights, published, random_model, tiny
from train.tiny_models import tiny_llama

SPELLER: PreTrainedTokenizerBase = train_bytepair(["the cat saw the dog"] * 9, 270)


def config(**changes: Any) -> LlamaConfig:
    own = {
        "vocab_size": 270,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
    }
    return LlamaConfig(**{**own, **changes})


def weights(seed: int) -> dict[str, torch.Tensor]:
    set_seed(seed)
    return random_model(config(), SPELLER, "baby", device="cpu").open().model.state_dict()


def test_the_seed_decides_the_weights() -> None:
    one, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


def test_it_is_called_as_it_was_and_reads_with_its_tokenizer() -> None:
    stack = random_model(config(), SPELLER, "baby", device="cpu").open()
    assert (stack.source.name, stack.depth, stack.tokenizer) == ("baby", 3, SPELLER)
    assert stack.dtype == torch.float32


def test_the_digest_is_of_the_configuration_and_the_vocabulary() -> None:
    own = random_model(config(), SPELLER, "baby").weights
    assert random_model(config(), SPELLER, "another name").weights == own
    assert random_model(config(num_hidden_layers=4), SPELLER, "baby").weights != own
    assert random_model(config(), train_bytepair(["a dog ran away"] * 9, 270), "baby").weights != own


def test_the_tiny_one_has_twelve_layers_and_a_head_of_its_own() -> None:
    found = tiny(SPELLER)
    assert (found.num_hidden_layers, found.vocab_size, found.tie_word_embeddings) == (12, len(SPELLER), False)
    assert (found.bos_token_id, found.pad_token_id) == (0, 1)


def test_the_published_one_has_twelve_layers_and_the_weights_that_are_known() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(published(SPELLER))
    assert model.config.num_hidden_layers == 12
    assert model.num_parameters() == pytest.approx(9.57e6, rel=0.01)


def test_a_folder_without_weights_is_a_configuration(tmp_path: Path) -> None:
    config().save_pretrained(tmp_path / "bare")
    tiny_llama().save_pretrained(tmp_path / "trained")
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"")
    assert not has_weights(str(tmp_path / "bare"))
    assert has_weights(str(tmp_path / "trained"))
    assert has_weights(str(tmp_path / "pickled")), "they are refused when it is opened, and not passed over"
    assert has_weights("demo")
    assert has_weights(str(tmp_path / "nothing")), "opening it says that it is not there"
    assert open_config(str(tmp_path / "bare")).num_hidden_layers == 3


def test_what_it_cannot_be_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the tokenizer has 270 tokens, and baby has embeddings for 200"):
        random_model(config(vocab_size=200), SPELLER, "baby")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        open_config(str(tmp_path))
    pictures = ViTConfig(vocab_size=270)
    with pytest.raises(ModelError, match="baby describes a vit, of which transformers makes no model that predicts"):
        random_model(pictures, SPELLER, "baby").open()
