"""Models with custom configurations and layers run plans."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from transformers import EsmForMaskedLM

from layerwise.checkpoint import save
from layerwise.errors import ModelError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load, verify, weight_hash
from layerwise.stack.blocks import find_blocks
from layerwise.stack.inputs import example_inputs
from layerwise.stack.max_length import longest_input
from layerwise.stack.per_layer import per_layer_tensors
from stack.test_inputs import SIDES, SOUND, loud, model_of

SETTINGS = {"n_layer": 6, "n_embd": 16, "vocab_size": 50, "act": torch.float32}


class AttributeDict(dict):  # type: ignore[type-arg]
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


class AnyName(dict):  # type: ignore[type-arg]
    """As omegaconf and addict: a name that is not there is empty, not missing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name, AnyName())


class FrozenDict(OrderedDict):  # type: ignore[type-arg]
    """As diffusers': every entry is an attribute as well, and nothing can be set."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, value in settings.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_frozen", True)

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_frozen", False):
            raise TypeError(f"{name} cannot be set")
        super().__setattr__(name, value)


class Foreign(Mapping[str, Any]):
    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


class Named(NamedTuple):
    n_layer: int
    n_embd: int
    vocab_size: int
    act: torch.dtype


class Plain:
    def __init__(self, **settings: Any) -> None:
        vars(self).update(settings)


FIELDS = [(name, type(value), field(default=value)) for name, value in SETTINGS.items()]
KINDS: dict[str, Callable[..., Any]] = {
    "dataclass": make_dataclass("Config", FIELDS),
    "frozen dataclass": make_dataclass("Config", FIELDS, frozen=True),
    "dataclass with slots": make_dataclass("Config", FIELDS, slots=True),
    "dict": dict,
    "namespace": SimpleNamespace,
    "attribute dictionary": AttributeDict,
    "any name": AnyName,
    "frozen dictionary": FrozenDict,
    "mapping": Foreign,
    "named tuple": Named,
    "object": Plain,
    "text": lambda **_: "gpt",
    "none": lambda **_: None,
}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(self.norm(x)))


class NanoGPT(nn.Module):
    """As karpathy/nanoGPT: blocks in a list inside a dictionary, positional arguments, logits and a loss."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        blocks = nn.ModuleList(Block(16) for _ in range(6))
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(50, 16), "h": blocks})
        self.lm_head = nn.Linear(16, 50)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.transformer["wte"](idx)
        for block in self.transformer["h"]:  # type: ignore[attr-defined]
            x = block(x)
        return self.lm_head(x), None


IDX = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_verb_of_a_stack_works(kind: str) -> None:
    torch.manual_seed(0)
    model: Any = NanoGPT(KINDS[kind](**SETTINGS)).eval()
    stack, plan = load(model), Plan.parse("0 2 2 5 1 1 1")
    stack.inspect(idx=IDX)
    expected = model.transformer["wte"](IDX)
    for layer in plan.order():
        expected = model.transformer["h"][layer](expected)
    expected = model.lm_head(expected)
    torch.testing.assert_close(stack.logits(plan, idx=IDX), expected)
    with stack.under(plan):
        torch.testing.assert_close(model(IDX)[0], expected)
        torch.testing.assert_close(model(idx=IDX)[0], expected)
    assert all(law.holds is not False for law in verify(stack, plan, {"idx": IDX}))
    merged = Stack.with_sources({"a": stack, "b": load(copy.deepcopy(model))})
    torch.testing.assert_close(merged.logits("a:0 b:2*2 a:5 b:1*3", idx=IDX), expected)
    assert longest_input(model) is None
    assert find_blocks(model) == "transformer.h"
    assert weight_hash(model) == weight_hash(copy.deepcopy(model))
    if kind in ("text", "none"):
        with pytest.raises(ModelError, match="no configuration with a vocab_size"):
            _ = stack.text_config
    else:
        assert stack.text_config.vocab_size == 50


class Counting(NanoGPT):
    """Blocks by their number, and as many as the configuration says."""

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x, blocks = self.transformer["wte"](idx), self.transformer["h"]
        for number in range(self.config["n_layer"] if isinstance(self.config, dict) else self.config.n_layer):
            x = blocks[number](x)  # type: ignore[index]
        return self.lm_head(x), None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("text", "none", "mapping")])
@torch.no_grad()
def test_a_count_in_the_configuration_follows_the_plan(kind: str) -> None:
    model = Counting(KINDS[kind](**SETTINGS)).eval()
    other, stack, config = Counting(model.config).eval(), load(model), model.config
    before = other(IDX)[0]
    for plan in ("0 2", "5-0 1"):
        with stack.under(plan):
            inside = model(IDX)[0]
            assert torch.equal(other(IDX)[0], before), "a model of the same configuration keeps its layers"
        torch.testing.assert_close(inside, stack.logits(plan, idx=IDX))
    assert model.config is config


def test_models_of_other_settings_are_not_combined() -> None:
    stacks = {name: load(NanoGPT({**SETTINGS, "n_head": heads}).eval()) for name, heads in (("a", 2), ("b", 4))}
    with pytest.raises(ModelError, match="n_head in its configuration is 4, not 2"):
        Stack.with_sources(stacks)


ESM = {"position_embedding_type": "rotary", "mask_token_id": 3, "attn_implementation": "eager"}
IDS = torch.tensor([[0, 5, 6, 7, 8, 9, 10, 2]])
PLANS = ("1 0 2", "0 2", "2 1 1 0")
HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "EsmForMaskedLM": (ESM, "esm.encoder.layer"),
    "Wav2Vec2ForSequenceClassification": ({**SOUND, "use_weighted_layer_sum": True}, "wav2vec2.encoder.layers"),
    "WhisperForAudioClassification": ({**SIDES, "use_weighted_layer_sum": True}, "encoder.layers"),
}


def outputs(model: Any) -> Tensor:
    if isinstance(model, EsmForMaskedLM):
        return model.esm.predict_contacts(IDS, torch.ones_like(IDS))
    inputs = example_inputs(model)
    assert inputs is not None
    return model(**inputs).logits


def built(name: str) -> Any:
    model = loud(model_of(name, HEADS[name][0]))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_()
    return model


def by_hand(name: str, model: Any, order: Sequence[int]) -> Any:
    """A model of the class with as many layers as there are visits, filled tensor by tensor."""
    settings, path = HEADS[name]
    counts = {key: len(order) for key in ("num_hidden_layers", "encoder_layers")}
    made, own = model_of(name, {**settings, **counts}), model.state_dict()
    for key, value in made.state_dict().items():
        if key.startswith(f"{path}."):
            slot, _, rest = key.removeprefix(f"{path}.").partition(".")
            value.copy_(own[f"{path}.{order[int(slot)]}.{rest}"])
        elif key == "layer_weights":
            value.copy_(own[key][[0, *(layer + 1 for layer in order)]])
        elif key.endswith("regression.weight"):
            value.copy_(own[key].view(1, 3, 4)[:, list(order)].reshape(1, -1))
        else:
            value.copy_(own[key])
    return made


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_a_plan_in_place_is_a_model_built_for_it(name: str) -> None:
    model = built(name)
    stack, before, own = load(model), list(model.state_dict()), outputs(model)
    (found,) = per_layer_tensors(model, stack.path)
    parameter = dict(model.named_parameters())[found]
    for text in PLANS:
        plan = Plan.parse(text)
        expected = outputs(by_hand(name, model, plan.order()))
        with stack.under(plan):
            torch.testing.assert_close(outputs(model), expected, rtol=1e-4, atol=1e-5)
            assert list(model.state_dict()) == before
            assert dict(model.named_parameters())[found] is parameter
        assert (expected - own).abs().max() > 1e-4
    assert torch.equal(outputs(model), own)


@torch.no_grad()
def test_columns_of_a_contact_head_are_saved_in_the_order_of_the_plan(tmp_path: Path) -> None:
    model = built("EsmForMaskedLM")
    model.save_pretrained(tmp_path / "own")
    for number, source in enumerate((load(model), str(tmp_path / "own"))):
        for text in PLANS:
            folder = tmp_path / f"{number} {text}"
            save(source, text, folder)
            saved = EsmForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
            expected = by_hand("EsmForMaskedLM", model, Plan.parse(text).order())
            torch.testing.assert_close(outputs(saved), outputs(expected))


def test_weights_of_layers_are_trained_in_place_and_named_where_a_plan_cannot_run_step_by_step() -> None:
    model = built("Wav2Vec2ForSequenceClassification")
    stack = load(model)
    with stack.under("2 0"):
        outputs(model).sum().backward()
    assert (model.layer_weights.grad != 0).tolist() == [True, True, False, True]
    with pytest.raises(UnsupportedModelError, match="layer_weights may read the outputs of all layers"):
        stack.logits("2 0", **(example_inputs(model) or {}))
