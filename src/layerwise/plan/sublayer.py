"""The two halves of a layer, which a plan may run on their own.

A layer usually adds to the residual stream twice: `attn` mixes tokens (attention or a state-space mixer), `mlp` acts on
each token (dense or a mixture of experts). `12.attn` is `x + branch(x)` with the other branch silent. In layers such as
Llama's, `12.attn 12.mlp` is `12`; where both read the same state, as in GPT-J, `(12.attn|12.mlp):sum` is `12`. Whether
a model can be split is found out when the plan meets it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import shown

Sublayer: TypeAlias = Literal["attn", "mlp"]

SUBLAYERS: tuple[Sublayer, ...] = get_args(Sublayer)


def check_sublayer(sublayer: object) -> None:
    if sublayer not in SUBLAYERS:
        raise PlanError(f"unknown half {shown(sublayer)} of a layer; {near_matches(str(sublayer)[:30], SUBLAYERS)}")


def other_sublayer(sublayer: Sublayer) -> Sublayer:
    """The other half of a layer.

    >>> other_sublayer("attn")
    'mlp'
    """
    check_sublayer(sublayer)
    return "mlp" if sublayer == "attn" else "attn"


def named(layer: int, sublayer: Sublayer | None, source: str | None = None) -> str:
    """A layer or one of its halves, of the model at hand or of a named one, as a plan's text has it.

    >>> named(12, None), named(12, "attn"), named(12, "attn", "a")
    ('12', '12.attn', 'a:12.attn')
    """
    whole = str(layer) if source is None else f"{source}:{layer}"
    return whole if sublayer is None else f"{whole}.{sublayer}"
