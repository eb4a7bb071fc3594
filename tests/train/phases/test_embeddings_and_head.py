"""What stands around the layers is found by behaviour, and a weight that stands on both sides is said to be tied."""

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from layerwise.stack import load
from layerwise.train.phases.runner import find_embeddings_and_head
from train.tiny_models import tied_llama, tiny_digits, tiny_llama, tiny_text, tiny_vit


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
def test_weights_before_and_behind_the_layers(
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


def test_what_the_layers_are_called_with_is_before_them_and_what_nothing_depends_on_is_behind() -> None:
    model = tiny_llama()
    model.model.rotary_emb = LearnedAngles(model.model.rotary_emb)
    model.unused = torch.nn.Parameter(torch.zeros(3))
    splits = tiny_text()
    found = find_embeddings_and_head(load(model), splits.collate([splits.train[0]]))
    before, behind = ({id(weight) for weight in weights} for weights in (found.before, found.behind))
    length, unused = id(model.model.rotary_emb.length), id(model.unused)
    assert (length in before, length in behind) == (True, False)
    assert (unused in before, unused in behind) == (False, True)
