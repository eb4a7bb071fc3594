"""Write the support table from the contract tests: `PYTHONPATH=tests python -m contracts.support` (6 minutes)."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import transformers

from contracts import checks, specimen
from contracts.checks import WAYS, Answer, Halves, Way
from contracts.specimen import Refusal, Specimen
from contracts.zoo import POPULAR, REFUSED, SUPPORTED, named
from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.stack.checks.compatibility import refuse_loss_of_a_kind

TABLE = Path(__file__).parents[2] / "docs" / "support.md"

_KINDS = {
    "decoder": "Decoders of text",
    "encoder": "Encoders of text",
    "vision": "Encoders of images and films",
    "audio": "Encoders of sound",
}

_INTRODUCTION = """\
# Supported models

This page is written by the contract tests, with transformers {version}: `PYTHONPATH=tests python -m contracts.support`.
layerwise has no code for any architecture. Each model type below was built small, with random weights so large that
every layer matters, and held to these laws:

- **identity**: the plan `0-4` over its five layers gives the model's own output [to the bit](glossary.md), step by step
  and in place, and leaves no trace;
- **plans**: layers skipped, exchanged, repeated, parallel, looped, nested, and at random, each equal to a naive loop
  written independently in the test, step by step and in place;
- **recording**: `output_hidden_states=True` gives one state a visit under a plan, and one a layer again afterwards;
- **cached decoding** (decoders): tokens decoded with a cache equal tokens recomputed from the whole text, under a plan
  that skips, reorders and repeats and under one of nested groups: `greedy`, with a `left-padded` batch, with a `static`
  cache, and with a `beam` of two; and equal those of a separate model that was built with its layers in that order.
  `n/a` means that the model itself does not decode alike with this cache and without, before any plan.
- **halves**: where the layers can be split into `attn` and `mlp`, the two make the layer to rounding, the `mlp` half
  acts on every token alone, and plans with halves agree step by step, in place and with a cache. `in turn`: the plan
  `2.attn 2.mlp` is `2`; `side by side`: `(2.attn|2.mlp):sum` is. `no` means that plans with halves are refused with the
  reason (a norm after the addition, one branch, or three); plans of whole layers run all the same.

`layerwise verify MODEL --plan PLAN` holds your own model to the same laws.

{count} model types hold them all, so far as they apply; the layers of {split} can be split into halves.
"""


_POPULAR = """\
## The thirty most downloaded families of decoders

The list was compiled in November 2026 from memory of the Hub's page of models that generate text; it was not downloaded
from there. All of them load and run. What stands in the last column is a constraint on plans: a plan that breaks it is
refused with a sentence that says what to write instead, a sweep leaves such plans out and says how many, and all others
run. Models of images and text (Gemma 3, Gemma 4, Qwen3.5, Mistral Small 3) are re-planned in their text decoder.

- **halves**: plans with halves (`12.attn`, `12.mlp`) are refused, those of whole layers run.
- **both kinds**: the layers are of two kinds, attention and another, and a plan in place keeps one of each: a cache
  takes its length from them. Step by step, as in a sweep, all plans run.
- **keys and values**: the last layers have none of their own; each reads those of the last earlier layer of its kind of
  attention. That one runs before them, and not inside of a parallel group. What every layer is handed beside the hidden
  state (per-layer embeddings) stays with the layer wherever it stands; `layerwise save` writes it along, where the
  configuration can say the plan (the layers that read come last, and in Gemma 4 the last layer has full attention).

Two kinds of model that run one layer, or one stack of layers, several times are expressed by plans. ALBERT is one layer
run N times: with `num_hidden_layers=1` in its configuration the plan `0*12` is the model, to the bit. A looped decoder
(Ouro, which comes with its own code) runs its layers over and over: with one pass in its configuration
(`total_ut_steps=1`) the plan `[0-23]*4` is the loop, without the norm that such a model may have between its passes.
Loaded as they are, both are refused with that plan.
"""

Finding = tuple[Specimen, dict[Way, Answer], Halves]


def table(answers: Iterable[Finding]) -> str:
    found = list(answers)
    split = sum(halves != "no" for _, _, halves in found)
    lines = [_INTRODUCTION.format(version=transformers.__version__, count=len(found), split=split)]
    lines += [_POPULAR, *popular_rows({one.model_type: halves for one, _, halves in found}), ""]
    for kind, title in _KINDS.items():
        ways = WAYS if kind == "decoder" else ()
        header = ["model type", "class", "layers", "of note", "identity", "plans", "recording", "halves", *ways]
        lines += [f"## {title}", "", _row(header), _row(["---"] * len(header))]
        lines += [row(*finding) for finding in found if finding[0].kind == kind]
        lines.append("")
    lines += [
        "## Refused",
        "",
        "Each is refused with this reason: when it is loaded, or at first use if layerwise knows no input for it.",
        "",
    ]
    lines += [_row(["model type", "class", "the message says"]), _row(["---"] * 3)]
    lines += [refused_row(refusal) for refusal in REFUSED]
    return "\n".join(lines) + "\n"


def row(one: Specimen, answers: dict[Way, Answer], halves: Halves) -> str:
    decoding = [answers[way] for way in WAYS] if one.kind == "decoder" else []
    cells = [f"`{one.model_type}`", one.model_class, f"`{one.layers}`", ", ".join(one.tags)]
    return _row([*cells, "yes", "yes", "yes", halves, *decoding])


def popular_rows(halves: Mapping[str, Halves]) -> list[str]:
    header = [_row(["family", "models", "constraints on plans"]), _row(["---"] * 3)]
    return header + [
        _row([f"{kind}", models, ", ".join(_constraints(named(kind), halves[kind])) or "none"])
        for kind, models in POPULAR.items()
    ]


def _constraints(one: Specimen, halves: Halves) -> list[str]:
    every = {"halves": halves == "no", "both kinds": _both_kinds(one), "keys and values": bool(one.reads)}
    return [name for name, holds in every.items() if holds]


def _both_kinds(one: Specimen) -> bool:
    model = specimen.build(one)
    try:
        for layer in range(specimen.DEPTH):
            refuse_loss_of_a_kind(model, one.layers, Plan.of([layer]))
    except PlanError:
        return True
    return False


def refused_row(refusal: Refusal) -> str:
    return _row([f"`{refusal}`", refusal.specimen.model_class, f"... {refusal.reason} ..."])


def committed_rows() -> dict[str, str]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def measure(one: Specimen) -> Finding:
    subject = checks.subject(one)
    checks.check_identity(subject)
    checks.check_plans(subject)
    checks.check_recording(subject)
    print(one, flush=True)
    return one, checks.check_decoding(subject), checks.check_halves(subject)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    TABLE.write_text(table(measure(one) for one in SUPPORTED), encoding="utf-8")
