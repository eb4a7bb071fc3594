"""The model of a playground, and what the page shows about it and its plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from layerwise.checkpoint.compact import needs_compact
from layerwise.data.demo.corpus import demo_corpus
from layerwise.data.model_location import is_gguf
from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.documents import split_at_blank_lines
from layerwise.errors import DataError, MeasureError, RunError, UnsupportedModelError
from layerwise.measure.interventions.progressive import read_skipping_effects
from layerwise.measure.language.evaluation_data import EvalData, find_objective, tokenize
from layerwise.page.formatting import format_count
from layerwise.plan import Plan
from layerwise.plan.checks import TYPES, quantized_layers
from layerwise.plan.explain import explain
from layerwise.plan.plan import Stage, Visit
from layerwise.plan.wiring import matrix
from layerwise.results import Run, Score
from layerwise.results.manifest import model_name
from layerwise.results.vocabulary import CHOSEN, SEARCH
from layerwise.runner.opening import describe_structure
from layerwise.runner.verb import load_verb, write_command
from layerwise.search.costs import CostTable, count_bytes, count_parameters
from layerwise.stack import Stack

SAMPLE = files("layerwise.studies.play") / "sample.txt"
"""Short paragraphs of plain English, written for layerwise."""

MAX_PICTURED_STEPS = 120
"""Maximum number of steps of a plan whose wiring is drawn."""

MAX_PLAN, MAX_PROMPT, MAX_TEXT = 4_000, 8_000, 20_000
"""Maximum numbers of characters."""

MAX_NEW_TOKENS = 256

BATCH_TOKENS = 512
"""Tokens of a batch: a canceled request ends after one forward pass at the latest."""


@dataclass(frozen=True)
class Playground:
    """A model to play with.

    Attributes:
        stack: The model.
        location: Its location, as on the command line.
        text: Path of the text that layers are measured on, or None for the default.
        data: That text, tokenized.
        stored: Loss increases when a layer is skipped, from stored sweeps; empty if they are to be measured.
        plans: Plans of stored searches, with their labels.
    """

    stack: Stack
    location: str
    text: str | None
    data: EvalData
    stored: dict[int, Score]
    plans: Sequence[tuple[str, Plan]]

    @classmethod
    def open(cls, stack: Stack, location: str, text: str | None, evidence: Sequence[str]) -> Playground:
        """Read the text and the stored runs of a model.

        Raises:
            MeasureError: If the model is not a language model.
            DataError: If it has no tokenizer, or if the text cannot be read.
            RunError: If a run has neither effects of layers nor a plan.
        """
        find_objective(stack)
        is_demo = text is None and location == "demo"
        corpus = demo_corpus() if is_demo else read_corpus(str(SAMPLE) if text is None else text)
        stored: dict[int, Score] = {}
        plans: list[tuple[str, Plan]] = []
        for run in evidence:
            with Run.open(run) as opened:
                rows = opened.store.scores()
            skipped = read_skipping_effects(rows, stack.depth)
            selected = [Plan.parse(str(row.plan)) for row in rows if (row.measure, row.metric) == (SEARCH, CHOSEN)]
            if not skipped and not selected:
                raise RunError(
                    f"{run} has neither effects of single layers nor a selected plan. Pass a run of `layerwise sweep` "
                    "with the family leave_one_out, or of `layerwise search`."
                )
            stored |= skipped
            plans += [(f"{run}: {format_count(plan.cost().evaluations, 'layer')}", plan) for plan in selected]
        return cls(stack, location, text, tokenize(stack, corpus, batch_tokens=BATCH_TOKENS), stored, plans)

    @cached_property
    def identity(self) -> Plan:
        return Plan.identity(self.stack.depth)

    @cached_property
    def generates(self) -> bool:
        return hasattr(self.stack.model, "generate") and find_objective(self.stack) == "next_token"

    @property
    def text_path(self) -> str | None:
        """The path of the text for a command; the demo model needs none."""
        return self.text or (None if self.location == "demo" else str(SAMPLE))

    @cached_property
    def description(self) -> dict[str, Any]:
        """Content of the page before anything is measured."""
        is_sample = self.text_path == str(SAMPLE)
        return {
            "mode": "play",
            "model": model_name(self.location),
            "structure": describe_structure(self.stack),
            "depth": self.stack.depth,
            "generates": self.generates,
            "chat": bool(getattr(self.stack.tokenizer, "chat_template", None)),
            "prompt": "reverse k d a z =" if self.location == "demo" else "The capital of France is",
            "sublayers": self._can_run("0.mlp"),
            "types": list(TYPES) if self._can_run(f"{TYPES[0]}:0") else [],
            "formats": ["folder", "gguf"] if is_gguf(self.location) else ["folder"],
            "text": {
                "name": "the sample paragraphs of layerwise" if is_sample else self.data.name,
                "documents": self.data.documents,
                "tokens": self.data.tokens,
            },
            "plans": [{"label": label, "plan": str(plan)} for label, plan in self.plans],
            "limits": {"plan": MAX_PLAN, "prompt": MAX_PROMPT, "text": MAX_TEXT, "new_tokens": MAX_NEW_TOKENS},
        }

    def _can_run(self, plan: str) -> bool:
        try:
            if self.parse_plan(plan).has_sublayers():
                self.stack.branches()
        except UnsupportedModelError:
            return False
        return True

    def parse_plan(self, text: str) -> Plan:
        """Parse a plan, and raise a `LayerwiseError` if the model cannot run it."""
        plan = Plan.parse(text)
        self.stack.check(plan)
        return plan

    def describe_plan(self, plan: Plan) -> dict[str, Any]:
        """Return what the page shows of a plan without running it."""
        steps = plan.steps()
        return {
            "plan": str(plan),
            "explain": explain(plan, self.stack.depth).splitlines(),
            "stages": [describe_stage(stage) for stage in plan.stages],
            "skipped": sorted(set(range(self.stack.depth)) - set(plan.layers())),
            "steps": [step.name for step in steps],
            "matrix": matrix(plan) if len(steps) <= MAX_PICTURED_STEPS else None,
            "cost": self._describe_cost(plan),
            "original": self._describe_cost(self.identity),
            "can_save": self._find_obstacles(plan),
            "commands": {
                "sweep": write_command(load_verb("sweep"), self.sweep_options(plan, self.text_path)),
                "save": write_command(load_verb("save"), self.save_options(plan, "NAME")),
            },
        }

    def _describe_cost(self, plan: Plan) -> dict[str, int]:
        cost = plan.cost()
        return {
            "evaluations": cost.evaluations,
            "stages": cost.stages,
            "layers": cost.weights,
            "slots": cost.slots,
            **{name: int(table.sum_weights(plan)) for name, table in self._sizes.items()},
        }

    @cached_property
    def _sizes(self) -> dict[str, CostTable]:
        return {"parameters": count_parameters(self.stack), "bytes": count_bytes(self.stack)}

    def compare_sizes(self, plan: Plan) -> dict[str, dict[str, int]]:
        """Return parameters, KV slots and bytes of the original model and of `plan`."""
        original, changed = self._describe_cost(self.identity), self._describe_cost(plan)
        return {name: {"original": original[name], "plan": changed[name]} for name in ("parameters", "slots", "bytes")}

    def _find_obstacles(self, plan: Plan) -> dict[str, str | None]:
        """Return why a plan cannot be saved in a format, or None if it can."""
        folder = "A folder cannot have quantized layers." if quantized_layers(plan) else None
        file = "A GGUF file cannot have groups or sublayers." if needs_compact(plan) else None
        return {"folder": folder, "gguf": file if is_gguf(self.location) else "The model is not a GGUF file."}

    def search_options(self, text: str | None, budget: str) -> dict[str, Any]:
        return {"model": self.location, "text": text, "budget": budget}

    def sweep_options(self, plan: Plan, text: str | None) -> dict[str, Any]:
        plans = () if plan == self.identity else (str(plan),)
        families = ("leave_one_out",)
        return {"model": self.location, "text": text, "plans": plans, "families": families, "tokens": "all"}

    def save_options(self, plan: Plan, output: str) -> dict[str, Any]:
        return {"models": (self.location,), "plan": str(plan), "output": output, "compact": needs_compact(plan)}

    def read_text(self, text: str) -> EvalData:
        """Tokenize a pasted text, whose paragraphs are its documents; raise `DataError` if it cannot be scored."""
        try:
            corpus = Corpus.of(split_at_blank_lines(text), "pasted text")
            return tokenize(self.stack, corpus, batch_tokens=BATCH_TOKENS)
        except (DataError, MeasureError) as error:
            raise DataError(f"The text must have a paragraph of at least two tokens. {error}") from error


def describe_stage(stage: Stage) -> dict[str, Any]:
    plan = Plan((stage,))
    layers = list(dict.fromkeys(step.layer for step in plan.steps()))
    common = {"text": str(plan), "layers": layers, "times": stage.times}
    if isinstance(stage, Visit):
        return {**common, "kind": "layer", "sublayer": stage.sublayer, "source": stage.source}
    return {**common, "kind": type(stage).__name__.lower(), "sublayer": None, "source": None}
