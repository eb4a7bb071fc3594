"""Which plans are sequences of layers, and which stage is not."""

import pytest

from layerwise.errors import PlanError
from layerwise.plan.dialects import sequential


@pytest.mark.parametrize(
    ("text", "stage", "reason", "instead", "position"),
    [
        ("0-13 (14|15) 18-31", "2", "runs layers side by side", "write its layers in turn, as in 14 15", 5),
        ("0 1 (2):gain=0.5", "3", "scales the update of a layer", "write the whole layer, as in 2", 4),
        ("0-2 8-11.mlp 12", "2", "runs the mlp half of a layer", "as in 8-11", 4),
        ("0.attn 1", "1", "runs the attn half", "write the whole layer, as in 0", 0),
        ("a:0-3 [a:4 (b:5|b:6)*2]*2 7", "2", "side by side", "as in a:4 b:5 b:6", 6),
    ],
)
def test_the_stage_that_is_not_sequential_is_named(
    text: str, stage: str, reason: str, instead: str, position: int
) -> None:
    with pytest.raises(PlanError) as refused:
        sequential(text)
    message = str(refused.value)
    assert message.startswith(f"stage {stage} of the plan, ")
    assert f"{reason}" in message
    assert "mergekit's YAML says only which layers run one after another" in message
    assert instead in message
    assert refused.value.position == position
