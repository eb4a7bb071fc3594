"""`Stack`: a model whose layers can be run by a plan.

Step by step (`capture`, `run`, `finish`) is the reference. In place (`under`) makes the model itself run the plan, for
`generate`, pipelines and trainers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.errors import ModelError, UnsupportedModelError
from layerwise.plan import Plan, Sublayer
from layerwise.plan.checks import weight_type
from layerwise.stack.blocks import BlockList, block_list
from layerwise.stack.branches import Branches, find_branches, only
from layerwise.stack.checks import compatibility, forward_trace
from layerwise.stack.checks.compatibility import check_compatible, refuse_loss_of_a_kind
from layerwise.stack.checks.forward_trace import BlockTrace, StepwiseFailure
from layerwise.stack.configuration import is_of_transformers, text_config_of
from layerwise.stack.executors import capture, in_place, occupancy
from layerwise.stack.executors.capture import (
    Capture,
    Merger,
    follow,
    returned_state,
    streams_first,
    tokens_first,
    with_state,
)
from layerwise.stack.executors.clone import clone
from layerwise.stack.executors.entries import own_blocks
from layerwise.stack.inputs import accepted, evaluating, example_inputs, main_tensor, refuse_caches
from layerwise.stack.per_layer import per_layer_tensors
from layerwise.stack.placement import device_of, dtype_of
from layerwise.stack.quantization import QuantizedLayers, refuse_unquantizable
from layerwise.stack.streaming.resident import ResidentLayers
from layerwise.stack.trackers import HistoryTracker, KeyValueSharing, KeyValueTracker

# The attribute of a model that holds the plan it runs until it is told otherwise.
_ENTERED = "_layerwise_entered"


@dataclass(frozen=True)
class ModelOrigin:
    """Where a model came from: the name the user gave, its revision, and whether its own code may run."""

    name: str
    revision: str | None = None
    trust_remote_code: bool = False


class Stack:
    """The `depth` layers of one model, addressable by plans.

    `head_by_token` says whether norm and head were seen to act on every token alone, so that a loss needs no others.
    `sources` are the models that plans may take layers from by name: none, unless `with_sources` made the Stack.
    `resident` are the layers in memory, of a model whose layers are read from the disk when they are needed.
    `plan` is what the model runs from `enter` until `leave`: that of a compact checkpoint, else `None`.
    `model` is any `torch.nn.Module` whose blocks are in the `nn.ModuleList` or `nn.Sequential` at `path`;
    `layerwise.load` finds the path and makes a Stack. A Stack changes nothing in the model outside the `under` context.
    """

    def __init__(
        self,
        model: nn.Module,
        path: str,
        *,
        tokenizer: Any | None = None,
        source: ModelOrigin | None = None,
        resident: ResidentLayers | None = None,
    ) -> None:
        self.model = model
        self.path = path
        self.tokenizer = tokenizer
        self.source = source or ModelOrigin(type(model).__name__)
        self.resident = resident
        self._known_blocks = own_blocks(self.blocks)
        self.sources: Mapping[str, Stack] = {}
        self.head_by_token = False
        self._trace: BlockTrace | None = None
        self._tracker: HistoryTracker | KeyValueTracker | None = None
        self._branches: Branches | None = None
        self._unsplit: str | None = None
        self.plan: Plan | None = None
        self._quantized = QuantizedLayers()

    def __repr__(self) -> str:
        return f"Stack({self.source.name}: {type(self.model).__name__}, {self.depth} layers at {self.path})"

    @classmethod
    def with_sources(cls, sources: Mapping[str, Stack]) -> Stack:
        """A Stack that runs plans over several models, `a:0-3 b:4-7`, each layer from the model of that name.

        All that is not a layer (embedding, norm, head, tokenizer) is that of the first model, and so is a layer without
        a name. No weight is copied. Raises `ModelError`, naming the first difference, for models that are not built
        alike (see `layerwise.stack.checks.compatibility`).

        >>> from layerwise.stack import load
        >>> demo = load("demo")
        >>> merged = Stack.with_sources({"a": demo, "b": demo})
        >>> merged.check(Plan.parse("a:0-5 b:6-11"))
        """
        for stack in sources.values():
            stack._refuse_while_in_place("take layers from several models")
        check_compatible(sources)
        host = next(iter(sources.values()))
        merged = copy.copy(host)
        merged.sources = dict(sources)
        merged.source = ModelOrigin(", ".join(f"{name}: {stack.source.name}" for name, stack in sources.items()))
        return merged

    @property
    def blocks(self) -> BlockList:
        """Return the list of the layers' blocks, as the model holds it."""
        return block_list(self.model, self.path)

    @property
    def depth(self) -> int:
        """Return the number of layers of the model, whatever plan it runs."""
        return len(own_blocks(self.blocks))

    @property
    def device(self) -> torch.device:
        """The device of the model's weights."""
        return device_of(self.model)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the model's weights."""
        return dtype_of(self.model)

    @property
    def running(self) -> Plan | None:
        """The plan that the model runs in place at this moment, if any."""
        return occupancy.running(self.blocks)

    @property
    def sharing(self) -> KeyValueSharing | None:
        """Which layers read keys and values of others, as was seen when the model was inspected: plans in which such a
        layer runs before the one that it reads are refused.
        """
        return None if self._trace is None else self._trace.sharing

    @property
    def text_config(self) -> Any:
        """Return what describes the model's text in its configuration. Raises `ModelError` if there is none."""
        config = text_config_of(self.model)
        if config is None or not (hasattr(config, "vocab_size") or is_of_transformers(config)):
            raise ModelError(
                f"{self.source.name} has no configuration with a vocab_size, so it cannot read text. Pass your own "
                "batches."
            )
        return config

    def inspect(self, **inputs: Any) -> BlockTrace:
        """Prove on `inputs` that the model can be re-planned, or raise `UnsupportedModelError` with the reason.

        The blocks run once each in order and pass on only the hidden state (`forward_trace.trace_blocks`); the identity
        plan is bit-identical; and another order gives the same in place and step by step.
        """
        refuse_caches(inputs)
        arguments = accepted(self.model, inputs)
        try:
            # Not inference mode: what a model keeps from its first pass (BEiT, for all models of its class) must serve
            # a later training.
            with (
                occupancy.inspecting(self.model, self.path, self.source.name),
                evaluating(self.model),
                torch.no_grad(),
            ):
                self._trace = forward_trace.trace_blocks(self.model, own_blocks(self.blocks), arguments)
                name = type(self.model).__name__
                sharing = self._trace.sharing
                self._tracker = HistoryTracker(name) if self._trace.mixes else None
                self._tracker = self._tracker if sharing is None else KeyValueTracker(sharing, name)
                own = main_tensor(self._trace.output)
                compatibility.prove_repeatable(self, arguments, own)
                compatibility.prove_identity(self, arguments, own)
                compatibility.prove_free_of_position(self, inputs)
                self.head_by_token = compatibility.head_acts_by_token(self, arguments, own)
        except ModelError:
            self._trace = None
            raise
        except Exception as error:  # a model may fail in any way when its blocks are called out of turn
            self._trace = None
            names = ", ".join(per_layer_tensors(self.model, self.path))
            raise StepwiseFailure(
                f"{type(self.model).__name__} fails when its layers are run one by one: {type(error).__name__}: {error}"
                + (f". Its {names} may weigh what every layer returns, which only plans in place have" if names else "")
                + compatibility.numbering(self.blocks)
            ) from error
        self._trace = replace(self._trace, output=None)
        return self._trace

    def capture(self, **inputs: Any) -> Capture:
        """Run the model up to its blocks: the state before the first, and the arguments of each layer.

        Raises `ModelError` for a cache of earlier tokens among the inputs: every run of the batch would extend it.
        """
        self._refuse_while_in_place("capture a batch")
        refuse_caches(inputs)
        self._notice_other_blocks()
        trace = self._trace or self.inspect(**inputs)
        with occupancy.capturing(self.model, self.path, self.source.name, "capture a batch"):
            captured = capture.capture(self.model, self.blocks, trace, accepted(self.model, inputs))
        if trace.streams_first:
            captured = replace(captured, state=tokens_first(captured.state))
        if self._tracker is not None:
            self._tracker.begin(captured.state)
        return captured

    def capture_pass(self, inputs: Mapping[str, Any]) -> Capture:
        """Capture one pass of cached decoding; its calls hold the cache. Needs an earlier `capture`."""
        trace = self._inspected("capture a pass")
        with occupancy.capturing(self.model, self.path, self.source.name, "capture a pass"):
            return capture.capture(self.model, self.blocks, trace, inputs)

    def finish_pass(self, state: Tensor, inputs: Mapping[str, Any]) -> Any:
        """`finish` of one pass of cached decoding: what the model returns when its blocks arrive at `state`."""
        trace = self._inspected("finish a pass")
        with occupancy.capturing(self.model, self.path, self.source.name, "finish a pass"):
            return capture.finish(self.model, self.blocks, trace, inputs, state)

    def _inspected(self, wish: str) -> BlockTrace:
        self._refuse_while_in_place(wish)
        if self._trace is None:
            raise ModelError(f"cannot {wish} of {self.source.name} yet: call stack.inspect(**inputs) first")
        if self._tracker is not None or self._trace.streams_first:
            raise UnsupportedModelError(
                f"cannot {wish} of {type(self.model).__name__}: its layers read what each of the earlier ones left "
                "behind, which passes of single layers do not carry; use stack.capture and stack.run"
            )
        return self._trace

    def check(self, plan: Plan | str) -> None:
        """Raise `PlanError` unless this Stack has the layers and sources that `plan` names.

        Raises `UnsupportedModelError` for a layer that runs before the one whose keys and values it reads, for groups
        of layers that read all earlier states, and for a type (GGUF) that a layer cannot have.
        """
        plan = Plan.parse(plan)
        for stack in (self, *self.sources.values()):
            stack._notice_other_blocks()
        plan.check(self.depth, self.sources)
        refuse_unquantizable(self, plan)
        if self._tracker is not None:
            self._tracker.refuse(plan)

    def block(self, layer: int, source: str | None = None) -> nn.Module:
        """The module that computes a layer: the model's own, that of the named source, or the own at a type."""
        own, kind = own_blocks(self.blocks)[layer], weight_type(source)
        if kind is not None:
            return clone(own, 0, weights=self._quantized.weights(own, layer, kind))
        return own if source is None else self.sources[source].block(layer)

    def apply(
        self, layer: int, state: Tensor, captured: Capture, sublayer: Sublayer | None = None, source: str | None = None
    ) -> Tensor:
        """Run one layer, of the named source if there is one, on `state`; same shape out as in.

        It is called with its captured arguments. With a `sublayer` only that half of the layer runs (`x + branch(x)`).
        Raises `UnsupportedModelError` if the model cannot be split.
        """
        block = self.block(layer, source)
        args, kwargs = self.call(layer, state, captured)
        if sublayer is None:
            return self.note(layer, state, self.returned(block(*args, **kwargs)))
        with only(block, self.branches(captured).paths[layer], sublayer):
            return self.note(layer, state, self.returned(block(*args, **kwargs)))

    def returned(self, output: Any) -> Tensor:
        """The hidden state in what a block returned, batch and tokens first, on the model's first device."""
        state = returned_state(output)
        if state.device != self.device:  # the model is spread over several
            state = state.to(self.device)
        return tokens_first(state) if self._trace is not None and self._trace.streams_first else state

    def call(self, layer: int, state: Tensor, captured: Capture) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with which a layer is called on `state`: those captured for it, and the record if it reads one.

        Raises `UnsupportedModelError` where a record is needed and nothing is known of what led to `state`; see `note`.
        """
        handed = streams_first(state) if self._trace is not None and self._trace.streams_first else state
        args, kwargs = with_state(captured.calls[layer].args, captured.calls[layer].kwargs, handed)
        return args, kwargs if self._tracker is None else {**kwargs, **self._tracker.keywords(layer, state, kwargs)}

    def note(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        """Record that `layer` made `after` of `before` outside `apply`, and return the state to continue with.

        Only layers that read earlier states need it (see `layerwise.stack.history`).
        """
        return after if self._tracker is None else self._tracker.note(layer, before, after)

    def changed(self, state: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """`change(state)`, some of its rows or tokens say, from which the model can `finish` as from `state`."""
        return change(state) if self._tracker is None else self._tracker.changed(state, change)

    def branches(self, captured: Capture | None = None) -> Branches:
        """The two branches of every layer, found on first use on example inputs or else on `captured`.

        Raises `UnsupportedModelError` if a layer cannot be split, and `ModelError` without a batch.
        """
        if isinstance(self._tracker, HistoryTracker):
            self._unsplit = (
                f"{type(self.model).__name__} cannot be split into attn and mlp: its layers do not add to the state "
                "before them, they start from a weighted sum of all earlier ones. Use whole layers"
            )
        if self._unsplit is not None:
            raise UnsupportedModelError(self._unsplit)
        if self._branches is None:
            try:
                self._branches = find_branches(self, self._small_batch(captured))
            except UnsupportedModelError as refused:
                self._unsplit = str(refused)
                raise
        return self._branches

    def _small_batch(self, otherwise: Capture | None) -> Capture:
        inputs = example_inputs(self.model)
        if inputs is not None:
            return self.capture(**inputs)
        if otherwise is None:
            raise ModelError(
                f"{type(self.model).__name__} takes inputs that layerwise cannot make up, and the halves of its layers "
                "are found on a batch: call stack.branches(stack.capture(**inputs)) once, then run the plan in place"
            )
        return otherwise

    def states(self, plan: Plan | str, captured: Capture) -> Iterator[Tensor]:
        """The hidden state before the first step of `plan` and after each, `len(plan.steps()) + 1` in all.

        Inside a group, the state after a member is what the next member starts from; after the last, the merge.
        """
        plan = Plan.parse(plan)
        self.check(plan)
        if len(captured.calls) != self.depth:
            raise ModelError(
                f"the batch must be captured from the model's {self.depth} layers, got {len(captured.calls)} layers: "
                "the list of blocks was changed since. Capture the batch again."
            )
        groups: list[Merger] = []
        state = captured.state
        yield state
        for step in plan.steps():
            state = follow(step, state, self.apply(step.layer, state, captured, step.sublayer, step.source), groups)
            yield state

    def run(self, plan: Plan | str, captured: Capture) -> Tensor:
        """The hidden state that `plan` arrives at, from the captured state; the reference for every other executor."""
        plan = Plan.parse(plan)
        state = captured.state
        for state in self.states(plan, captured):  # noqa: B007  (the last one is the answer)
            pass
        return state

    def finish(self, state: Tensor, inputs: Mapping[str, Any]) -> Any:
        """What the model returns on `inputs` when its blocks arrive at `state`: its own norm, pooler and head."""
        self._refuse_while_in_place("finish a state")
        if self._trace is None:
            raise ModelError("finish needs a captured batch first: call stack.capture(**inputs)")
        inputs = accepted(self.model, inputs)
        with occupancy.capturing(self.model, self.path, self.source.name, "finish a state"):
            way = self._tracker.way(state) if isinstance(self._tracker, HistoryTracker) else None
            state = streams_first(state) if self._trace.streams_first else state
            return capture.finish(self.model, self.blocks, self._trace, inputs, state, way)

    def output(self, plan: Plan | str, **inputs: Any) -> Any:
        """What the model returns under `plan`, step by step."""
        plan = Plan.parse(plan)
        captured = self.capture(**inputs)
        return self.finish(self.run(plan, captured), captured.inputs)

    def logits(self, plan: Plan | str, **inputs: Any) -> Tensor:
        """The model's main output under `plan`: logits where it has a head, else the last hidden state."""
        plan = Plan.parse(plan)
        return main_tensor(self.output(plan, **inputs))

    @contextmanager
    def under(self, plan: Plan | str, *, single_pass: bool = False) -> Iterator[Stack]:
        """Within the context the model itself runs `plan`: forward, `generate`, pipelines, trainers.

        Parameters are shared, cached decoding has one slot per visit, and the model is restored even if an exception is
        raised. `state_dict`, `save_pretrained`, `to`, `train`, new hooks and adapters act on the model itself;
        iterating its blocks and reading `model.config` follow the plan. Other models that share the configuration keep
        it, and copies of it are the model's, except in a forward pass. A cache of earlier tokens serves only the plan
        that has written it. Hooks and recorded hidden states see each layer's own input and output at each visit,
        before a group merges them. Copying and pickling the model raises `ModelError`.

        Threads that call the model inside the context run the plan, each pass by itself. Another thread that enters a
        plan or captures a batch meanwhile gets a `ModelError`; a plan waits for captures before it enters and for
        passes before it leaves. Not guarded: a pass of the original model that another thread began before the
        plan was entered, or while layers are inspected (`load`, `verify`, the first plan with sublayers). Start threads
        inside the context, or give each its own model.

        `single_pass` promises that no cache outlives a forward pass, as in training and scoring; asking for one raises
        `ModelError`. A layer that is visited once is then the block itself, which keeps sharding intact.
        """
        plan = Plan.parse(plan)
        self._refuse_while_in_place(f"run {plan}")
        self.check(plan)
        refuse_loss_of_a_kind(self.model, self.path, plan)
        pairs = self.branches().paths if plan.has_sublayers() else ()
        with in_place.in_place(self, plan, pairs, single_pass=single_pass):
            yield self

    def enter(self, plan: Plan | str) -> None:
        """Make the model run `plan`, as in `under`, until `leave`; compact checkpoints open like this."""
        plan = Plan.parse(plan)
        context = self.under(plan)
        context.__enter__()
        # The model holds it, so that the plan stays as long as the model, whatever becomes of the Stack.
        vars(self.model)[_ENTERED] = context
        self.plan = plan

    def leave(self) -> None:
        """Leave the plan that was entered by `enter`: the model runs its layers in their order again."""
        context = vars(self.model).pop(_ENTERED, None)
        self.plan = None
        if context is not None:
            context.__exit__(None, None, None)

    def _notice_other_blocks(self) -> None:
        own = own_blocks(self.blocks)
        if own == self._known_blocks:
            return
        # Layers were replaced, removed or added since: what was seen of the earlier ones is no longer known.
        was_inspected = self._trace is not None
        self._known_blocks, self._trace, self._tracker = own, None, None
        self._branches, self._unsplit, self.head_by_token = None, None, False
        inputs = example_inputs(self.model) if was_inspected else None
        if inputs is not None:
            self.inspect(**inputs)

    def _refuse_while_in_place(self, wish: str) -> None:
        for stack in (self, *self.sources.values()):
            occupancy.refuse_while_running(stack.blocks, stack.source.name, wish)
