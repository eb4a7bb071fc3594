"""Randomly initialized models, and their embedding and head weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ViTConfig,
    set_seed,
)

from layerwise.data.text.vocabulary import train_bytepair
from layerwise.errors import CheckpointError, DataError, ModelError
from layerwise.stack import load
from layerwise.stack.checks.checkpoint_files import open_config
from layerwise.train.phases.random_init import has_weights, published, random_model
from layerwise.train.phases.runner import find_embeddings_and_head
from train.tiny_models import tied_llama, tiny_digits, tiny_llama, tiny_text, tiny_vit

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


def test_the_seed_determines_the_weights_and_the_digest_covers_their_model() -> None:
    one, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])

    own = random_model(config(), SPELLER, "baby").weights
    assert random_model(config(), SPELLER, "another name").weights == own
    assert random_model(config(num_hidden_layers=4), SPELLER, "baby").weights != own
    assert random_model(config(), train_bytepair(["a dog ran away"] * 9, 270), "baby").weights != own


def test_the_published_size_has_the_published_parameters() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(published(SPELLER))
    assert model.config.num_hidden_layers == 12
    assert model.num_parameters() == pytest.approx(9.57e6, rel=0.01)


def test_a_folder_without_weights_is_randomly_initialized(tmp_path: Path) -> None:
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


def test_invalid_configurations_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"vocab_size of baby must be at least 270, the size of the tokenizer, got 200"):
        random_model(config(vocab_size=200), SPELLER, "baby")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        open_config(str(tmp_path))
    pictures = ViTConfig(vocab_size=270)
    with pytest.raises(ModelError, match="cannot build a causal language model from baby"):
        random_model(pictures, SPELLER, "baby").open()


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=19, n_embd=16, n_layer=3, n_head=2, n_positions=16))


WORDS = ["model.embed_tokens.weight"]
FINAL = ["model.norm.weight"]


@pytest.mark.parametrize(
    ("model", "splits", "before", "behind", "tied"),
    [
        (tiny_llama(), tiny_text(), WORDS, [*FINAL, "lm_head.weight"], []),
        (tied_llama(), tiny_text(), WORDS, [*WORDS, *FINAL], WORDS),
        (
            gpt2(),
            tiny_text(),
            ["transformer.wte.weight", "transformer.wpe.weight"],
            ["transformer.wte.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"],
            ["transformer.wte.weight"],
        ),
        (
            tiny_vit(),
            tiny_digits(),
            [
                "vit.embeddings.cls_token",
                "vit.embeddings.position_embeddings",
                "vit.embeddings.patch_embeddings.projection.weight",
                "vit.embeddings.patch_embeddings.projection.bias",
            ],
            ["vit.layernorm.weight", "vit.layernorm.bias", "classifier.weight", "classifier.bias"],
            [],
        ),
    ],
    ids=["llama", "tied llama", "gpt2", "vit"],
)
def test_embedding_and_head_weights(
    model: PreTrainedModel, splits: Any, before: list[str], behind: list[str], tied: list[str]
) -> None:
    found = find_embeddings_and_head(load(model), splits.collate([splits.train[0]]))
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert [names[id(weight)] for weight in found.before] == before
    assert sorted(names[id(weight)] for weight in found.behind) == sorted(behind)
    assert list(found.tied) == tied
    assert all(weight.grad is None for weight in model.parameters())


class LearnedAngles(torch.nn.Module):
    def __init__(self, rotary: torch.nn.Module) -> None:
        super().__init__()
        self.rotary = rotary
        self.length = torch.nn.Parameter(torch.ones(()))

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        return tuple(each * self.length for each in self.rotary(*args, **kwargs))


def test_embedding_and_head_weights_follow_the_data_flow() -> None:
    model = tiny_llama()
    model.model.rotary_emb = LearnedAngles(model.model.rotary_emb)
    model.unused = torch.nn.Parameter(torch.zeros(3))
    splits = tiny_text()
    found = find_embeddings_and_head(load(model), splits.collate([splits.train[0]]))
    before, behind = ({id(weight) for weight in weights} for weights in (found.before, found.behind))
    length, unused = id(model.model.rotary_emb.length), id(model.unused)
    assert (length in before, length in behind) == (True, False)
    assert (unused in before, unused in behind) == (False, True)
