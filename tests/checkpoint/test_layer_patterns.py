"""Names and patterns of layers: the stack is found in them, and they select the same layers under a plan."""

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

import pytest

from layerwise.checkpoint.layer_names import (
    LayerNames,
    LayerPatterns,
    UnresolvedNamesError,
    layer_groups,
    stack_prefix,
    unlike_layers,
)
from layerwise.errors import UnsupportedModelError

DEPTH = 12
MODULES = ("self_attn.q_proj", "self_attn.o_proj", "mlp.experts.2.up_proj", "mlp.gate")
ORDERS = ((2, 5, 3, 0), (0, 1, 2, 2, 3, 11, 2), (*range(12), 2), (11, 4))
FORMS = {
    "AWQ": {"modules_to_not_convert": ["lm_head", "model.layers.2.mlp", ".3.self_attn"]},
    "FP8": {"ignored_layers": ["model.layers.0.mlp.gate", "model.layers.11.mlp.gate"]},
    "bitsandbytes": {"llm_int8_skip_modules": ["layers.2", "lm_head"]},
    "GPTQ, a layer left out": {"dynamic": {r"-:.*\.2\..*": {}, r"+:.*\.[3-5]\..*": {"bits": 8}}},
    "GPTQ, a lookahead": {"dynamic": {r"-:^(?!.*layers\.2\.).*q_proj": {}}},
    "GPTQ, one digit alone": {"dynamic": {r"+:model\.layers\.\d\.mlp.*": {}}},
    "compressed-tensors": {
        "config_groups": {"group_0": {"targets": [r"re:.*layers\.(2|11)\.mlp.*"], "weights": {"num_bits": 4}}},
        "ignore": ["lm_head", r"re:model\.layers\.([0-4])\.self_attn\..*", "re:.*gate$"],
    },
    "Quark": {"exclude": ["lm_head", "*.2.self_attn*"], "layer_quant_config": {"model.layers.1[01].*": {"bits": 8}}},
    "torchao": {"quant_type": {"_data": {"module_fqn_to_config": {"model.layers.2.mlp.gate": {"bits": 8}}}}},
    "AutoRound": {"extra_config": {"model.layers.3.self_attn.q_proj": {"bits": 16}, r".*layers\.2\..*": {"bits": 8}}},
    "HQQ": {"quant_config": {"model.layers.4.mlp.gate": {"nbits": 8}, "self_attn.q_proj": {"nbits": 4}}},
    "MXFP4": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.embed_tokens"]},
}


def names(layers: Iterable[int] = range(DEPTH), prefix: str = "model.layers.") -> list[str]:
    return [f"{prefix}{layer}.{each}.weight" for layer in layers for each in MODULES]


def selected(pattern: str, layers: int) -> set[tuple[int, str]]:
    if pattern.startswith(("re:", "+:", "-:")) or "\\" in pattern:
        found: Callable[[str], object] = re.compile(re.sub(r"^(re|\+|-):", "", pattern)).match
    elif "*" in pattern:
        found = lambda name: fnmatchcase(name, pattern)  # noqa: E731
    else:
        found = re.compile(rf"(?:.*\.)?{re.escape(pattern.strip('.'))}(?:\.|$)").match
    return {(layer, each) for layer in range(layers) for each in MODULES if found(f"model.layers.{layer}.{each}")}


def texts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for key, each in value.items() for pair in [(key, each), *texts(each)]]
    return [(each, None) for each in value if isinstance(each, str)] if isinstance(value, list) else []


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_every_pattern_selects_the_layers_where_the_plan_runs_them(form: str, order: tuple[int, ...]) -> None:
    patterns = LayerPatterns([*names(), "lm_head.weight"], "model.layers.", order, DEPTH)
    written = patterns.rewrite({"quantization_config": FORMS[form], "id2label": {"0": "LABEL_2"}})
    assert written["id2label"] == {"0": "LABEL_2"}
    before, after = (texts(each) for each in (FORMS[form], written["quantization_config"]))
    for value in {repr(value): value for _, value in before}.values():
        rules = [
            {each for text, own in pairs if own == value for each in selected(text, 13)} for pairs in (before, after)
        ]
        wanted = {(slot, each) for slot, layer in enumerate(order) for at, each in rules[0] if at == layer}
        assert {each for each in rules[1] if each[0] < len(order)} == wanted, written


def test_numbers_and_entries_per_layer_follow() -> None:
    settings = {
        "per_layer": {"2": {"bits": 8}, "11": {"bits": 2}},
        "layers_left_out": [0, 2, 5],
        "layer_bits": list(range(DEPTH)),
        "weight_block_size": [128, 128],
        "version": "0.2.2",
    }
    patterns = LayerPatterns(names(), "model.layers.", (2, 5, 2, 11), DEPTH)
    assert patterns.rewrite({"compression_config": settings})["compression_config"] == {
        **settings,
        "per_layer": {"0": {"bits": 8}, "2": {"bits": 8}, "3": {"bits": 2}},
        "layers_left_out": [0, 1, 2],
        "layer_bits": [2, 5, 2, 11],
    }


def test_names_of_another_stack_stay_and_names_of_both_are_written_in_full() -> None:
    ours, theirs = "language_model.model.layers.", "vision_tower.encoder.layers."
    patterns = LayerPatterns([*names(prefix=ours), *names(range(4), theirs)], ours, (2, 0), DEPTH)
    assert patterns.rewrite_text(f"{theirs}2.mlp") == [f"{theirs}2.mlp"]
    assert patterns.rewrite_text("model.language_model.layers.2.mlp") == ["model.language_model.layers.0.mlp"]
    assert patterns.rewrite_text("layers.2.mlp") == [f"{ours}0.mlp", f"{theirs}2.mlp"]
    assert patterns.rewrite_text(r"re:.*vision.*\.2\..*") == [r"re:.*vision.*\.2\..*"]
    (both,) = patterns.rewrite_text(r"re:.*layers\.2\.mlp\.gate$")
    chosen = {name for name in (*names((0, 1), ours), *names(range(4), theirs)) if re.match(both[3:], name[:-7])}
    assert chosen == {f"{ours}0.mlp.gate.weight", f"{theirs}2.mlp.gate.weight"}


def test_one_text_for_several_layers_is_refused() -> None:
    patterns = LayerPatterns(names(), "model.layers.", (2, 2), DEPTH)
    with pytest.raises(UnsupportedModelError, match=r"layers\.2'? \(skip in the quantization"):
        patterns.rewrite({"quantization_config": {"skip": "model.layers.2"}})


EXPERTS = [f"model.layers.{layer}.mlp.experts.{expert}.w" for layer in range(3) for expert in range(2)]
TWO_SIDES = [f"{side}.layers.{layer}.w" for side in ("encoder", "decoder") for layer in range(2)]


def test_experts_are_numbered_inside_of_their_layer() -> None:
    assert layer_groups([*EXPERTS, "lm_head.weight"]) == {"model.layers.": 3}
    names = LayerNames.of([*EXPERTS, "lm_head.weight"], "model.layers.", 3)
    assert names.layers[2] == {".mlp.experts.0.w": EXPERTS[4], ".mlp.experts.1.w": EXPERTS[5]}
    assert names.others == ("lm_head.weight",)


def test_the_stack_is_chosen_by_its_depth_or_by_name() -> None:
    groups = {"features.": 7, "encoder.layers.": 12}
    assert stack_prefix(groups, [12], None) == ("encoder.layers.", 12)
    with pytest.raises(UnresolvedNamesError, match="layerwise cannot tell which tensors belong to the layers"):
        stack_prefix(groups, [3], None)

    groups = layer_groups(TWO_SIDES)
    with pytest.raises(UnresolvedNamesError):
        stack_prefix(groups, [2], None)
    assert stack_prefix(groups, [2], "model.decoder.layers") == ("decoder.layers.", 2)

    stored = [f"model.layers.{layer}.w" for layer in range(5)]
    prefix, depth = stack_prefix(layer_groups(stored), [4], None)
    assert depth == 4
    names = LayerNames.of(stored, prefix, depth)
    assert (len(names.layers), names.behind, names.others) == (4, ("model.layers.4.w",), ())
    with pytest.raises(UnresolvedNamesError):
        stack_prefix(layer_groups(stored), [3], None)
    assert stack_prefix(layer_groups(stored), [3], None, behind=2) == (prefix, 3)


def test_layers_may_differ_in_names_and_in_shapes() -> None:
    stored = ["h.0.w", "h.1.w", "h.1.b", "h.2.w"]
    names = LayerNames.of(stored, "h.", 3)
    assert unlike_layers(names, dict.fromkeys(stored, (1,)))
    alike = LayerNames.of(["h.0.w", "h.1.w"], "h.", 2)
    assert not unlike_layers(alike, {"h.0.w": (1,), "h.1.w": (1,)})
    assert unlike_layers(alike, {"h.0.w": (1,), "h.1.w": (2,)})
