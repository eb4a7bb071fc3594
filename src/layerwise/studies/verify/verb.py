"""`layerwise verify`: check that a model computes a plan correctly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerwise.plan import Plan
from layerwise.results.manifest import model_name
from layerwise.runner.arguments import Device, Dtype, Inputs, Location, ModelLike, OnePlan, Rare
from layerwise.runner.plan_choice import parse_plan
from layerwise.runner.reporter import Reporter, Silent, report_waiting
from layerwise.runner.verb import verb

if TYPE_CHECKING:
    from layerwise.stack.verify import Law

WORDS = {True: "holds", False: "FAILS", None: "n/a"}


class Verification(tuple["Law", ...]):
    """Results of the checks; `exit_code` is 1 if one of them failed."""

    __slots__ = ()

    @property
    def exit_code(self) -> int:
        """1 if a check failed, otherwise 0."""
        return int(any(law.holds is False for law in self))


@verb(
    "verify",
    group="Plans",
    examples=('demo --plan "0-3 (4|5|6)*2 7-11"', 'HuggingFaceTB/SmolLM2-135M --plan "0-13 18-29"'),
)
def verify(
    model: ModelLike,
    plan: OnePlan = None,
    inputs: Inputs = None,
    *,
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    reporter: Reporter | None = None,
) -> Verification:
    """Check that a model computes a plan correctly, including cached decoding.

    The exit code is 1 if a check fails.

    Args:
        model: Hub id, folder, GGUF file, or demo.
        plan: Plan to run (default: the original model).
        inputs: Keyword arguments of the model's forward (default: a small random batch with a fixed seed).
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        Every check with its name, its result (None if it does not apply), and details.

    Raises:
        PlanError: If the plan is invalid or runs layers that the model does not have.
        UnsupportedModelError: If the plan runs a sublayer and the layers cannot be split.

    Example:
        >>> layerwise.verify("demo", plan="0-4 (5|6|7) 8-11")  # doctest: +SKIP
    """
    checked = None if plan is None else parse_plan(str(plan))
    from layerwise.runner.opening import open_stack
    from layerwise.stack import verify as check_laws

    reporter = reporter or Silent()
    stack = open_stack(
        model,
        reporter,
        device=device,
        dtype=dtype,
        tokenizer=tokenizer,
        layers=layers,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    checked = checked or Plan.identity(stack.depth)
    label = f"verifying {checked}"
    with report_waiting(reporter, label):
        laws = check_laws(stack, checked, inputs, progress=lambda share: reporter.progress(label, share))
    width = max(len(law.name) for law in laws)
    reporter.result(f"{model_name(stack.source.name)} under {checked}")
    reporter.result("\n".join(f"{WORDS[law.holds]:5}  {law.name:{width}}  {law.detail}" for law in laws))
    return Verification(laws)
