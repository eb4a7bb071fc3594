"""Find the layer index and the stack in a parameter name."""

import pytest

from layerwise.checkpoint.layer_names import LayerNames, UnresolvedNames, layer_groups, stack_prefix, unlike_layers

EXPERTS = [f"model.layers.{layer}.mlp.experts.{expert}.w" for layer in range(3) for expert in range(2)]
TWO_SIDES = [f"{side}.layers.{layer}.w" for side in ("encoder", "decoder") for layer in range(2)]


def test_experts_are_numbered_inside_of_their_layer() -> None:
    assert layer_groups([*EXPERTS, "lm_head.weight"]) == {"model.layers.": 3}
    names = LayerNames.of([*EXPERTS, "lm_head.weight"], "model.layers.", 3)
    assert names.layers[2] == {".mlp.experts.0.w": EXPERTS[4], ".mlp.experts.1.w": EXPERTS[5]}
    assert names.others == ("lm_head.weight",)


def test_numbers_with_a_gap_are_no_stack() -> None:
    assert layer_groups(["head.0.w", "head.2.w", "h.0", "h.1"]) == {"h.": 2}


def test_the_stack_is_the_one_as_deep_as_the_configuration_says() -> None:
    groups = {"features.": 7, "encoder.layers.": 12}
    assert stack_prefix(groups, [12], None) == ("encoder.layers.", 12)
    with pytest.raises(UnresolvedNames, match=r"features\.N \(7\), encoder\.layers\.N \(12\).* counts 3"):
        stack_prefix(groups, [3], None)


def test_of_two_stacks_the_one_that_is_named() -> None:
    groups = layer_groups(TWO_SIDES)
    with pytest.raises(UnresolvedNames):
        stack_prefix(groups, [2], None)
    assert stack_prefix(groups, [2], "model.decoder.layers") == ("decoder.layers.", 2)


def test_layers_beyond_the_configuration_are_left_out() -> None:
    stored = [f"model.layers.{layer}.w" for layer in range(5)]
    prefix, depth = stack_prefix(layer_groups(stored), [4], None)
    assert depth == 4
    names = LayerNames.of(stored, prefix, depth)
    assert (len(names.layers), names.behind, names.others) == (4, ("model.layers.4.w",), ())
    with pytest.raises(UnresolvedNames):
        stack_prefix(layer_groups(stored), [3], None)
    assert stack_prefix(layer_groups(stored), [3], None, behind=2) == (prefix, 3)


def test_layers_may_differ_in_names_and_in_shapes() -> None:
    stored = ["h.0.w", "h.1.w", "h.1.b", "h.2.w"]
    names = LayerNames.of(stored, "h.", 3)
    assert unlike_layers(names, dict.fromkeys(stored, (1,)))
    alike = LayerNames.of(["h.0.w", "h.1.w"], "h.", 2)
    assert not unlike_layers(alike, {"h.0.w": (1,), "h.1.w": (1,)})
    assert unlike_layers(alike, {"h.0.w": (1,), "h.1.w": (2,)})
