"""`Stack`: a model whose layers a plan can run, one at a time (the reference) or in the model's own forward."""

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
from layerwise.stack.checks.forward_trace import BlockTrace, StepwiseError
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

# Attribute of a model with the context of the plan entered by `enter`.
_ENTERED = "_layerwise_entered"


@dataclass(frozen=True)
class ModelOrigin:
    """Name, revision and `trust_remote_code` of the checkpoint that a model was loaded from."""

    name: str
    revision: str | None = None
    trust_remote_code: bool = False


class Stack:
    """A model whose layers a plan can run.

    Attributes:
        model: Any `torch.nn.Module` whose blocks are in the `nn.ModuleList` or `nn.Sequential` at `path`.
        path: Dotted path of the list of blocks in the model.
        tokenizer: The tokenizer, or None.
        source: The checkpoint that the model was loaded from.
        resident: If layers are read from disk when they run, the layers that are in memory; otherwise None.
        sources: Other models that plans can take layers from, by name; see `with_sources`.
        head_by_token: True if the final norm and head treat every token separately.
        plan: The plan set by `enter`, or None.
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
        self._seen_blocks = own_blocks(self.blocks)
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
        """Create a Stack that can run layers of several models, as in `a:0-3 b:4-7`, without copying weights.

        The first model provides the embedding, norm and head, and the layers that a plan writes without a name. If the
        models do not match, the `ModelError` names the first difference.

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
        """The list of blocks of the model."""
        return block_list(self.model, self.path)

    @property
    def depth(self) -> int:
        """Number of layers of the original model.

        Example:
            >>> from layerwise import load
            >>> load("demo").depth
            12
        """
        return len(own_blocks(self.blocks))

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self.model)

    @property
    def running(self) -> Plan | None:
        """The plan that the model runs now, after `under` or `enter`, or None."""
        return occupancy.running(self.blocks)

    @property
    def sharing(self) -> KeyValueSharing | None:
        """The layers that read keys and values of other layers, as found by `inspect`; None if there are none."""
        return None if self._trace is None else self._trace.sharing

    @property
    def text_config(self) -> Any:
        """The part of the configuration that describes text. Raises `ModelError` if there is none."""
        config = text_config_of(self.model)
        if config is None or not (hasattr(config, "vocab_size") or is_of_transformers(config)):
            raise ModelError(
                f"{self.source.name} has no configuration with a vocab_size, so it cannot read text; pass your own "
                "batches"
            )
        return config

    def inspect(self, **inputs: Any) -> BlockTrace:
        """Check on `inputs` that the model can run plans. If not, raise `UnsupportedModelError` with the reason.

        The model must call each block once, in order, and blocks must pass on only the hidden state. The identity plan
        must give the model's output to the bit. With the layers in another order, the model's own forward must give the
        same output as calling the layers one by one.
        """
        refuse_caches(inputs)
        arguments = accepted(self.model, inputs)
        try:
            # Not inference mode: tensors that a model caches in its first pass (BEiT) must support later training.
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
        except Exception as error:  # a model may fail in any way when its blocks are called one by one
            self._trace = None
            names = ", ".join(per_layer_tensors(self.model, self.path))
            raise StepwiseError(
                f"{type(self.model).__name__} fails when its layers are run one by one ({type(error).__name__}: "
                f"{error})"
                + (f". Its {names} may read the outputs of all layers; use stack.under(plan)" if names else "")
                + compatibility.numbering(self.blocks)
            ) from error
        self._trace = replace(self._trace, output=None)
        return self._trace

    def capture(self, **inputs: Any) -> Capture:
        """Return the hidden state before the first block, and the arguments that the model passes to each block.

        Raises `ModelError` if the inputs contain a cache, since every run would extend it.

        Example:
            >>> from layerwise import load
            >>> stack = load("demo")
            >>> captured = stack.capture(input_ids=torch.tensor([[5, 6, 7]]))
            >>> captured.state.shape[:2]  # (batch, seq)
            torch.Size([1, 3])
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
        """Capture one forward pass with a KV cache. Requires an earlier `inspect` or `capture`."""
        trace = self._inspected("capture a pass")
        with occupancy.capturing(self.model, self.path, self.source.name, "capture a pass"):
            return capture.capture(self.model, self.blocks, trace, inputs)

    def finish_pass(self, state: Tensor, inputs: Mapping[str, Any]) -> Any:
        """Return the model's output in a forward pass with a KV cache, given the last hidden state."""
        trace = self._inspected("finish a pass")
        with occupancy.capturing(self.model, self.path, self.source.name, "finish a pass"):
            return capture.finish(self.model, self.blocks, trace, inputs, state)

    def _inspected(self, action: str) -> BlockTrace:
        self._refuse_while_in_place(action)
        if self._trace is None:
            raise ModelError(f"cannot {action} of {self.source.name} yet; call stack.inspect(**inputs) first")
        if self._tracker is not None or self._trace.streams_first:
            raise UnsupportedModelError(
                f"cannot {action} of {type(self.model).__name__}: its layers need the states of all earlier "
                "layers, which are not kept between passes; use stack.capture and stack.run"
            )
        return self._trace

    def check(self, plan: Plan | str) -> None:
        """Check that this Stack can run `plan`.

        Raises:
            PlanError: If a layer or source does not exist.
            UnsupportedModelError: If a layer runs before the one whose keys and values it reads, if layers that read
                all earlier states are grouped, or if a layer cannot be quantized.

        Example:
            >>> from layerwise import load
            >>> load("demo").check("0-5 7-11")
        """
        plan = Plan.parse(plan)
        for stack in (self, *self.sources.values()):
            stack._notice_other_blocks()
        plan.check(self.depth, self.sources)
        refuse_unquantizable(self, plan)
        if self._tracker is not None:
            self._tracker.refuse(plan)

    def block(self, layer: int, source: str | None = None) -> nn.Module:
        """Return the module of a layer.

        `source` is the name of another model that has the layer, or a GGUF type to which the layer is quantized.
        """
        own, kind = own_blocks(self.blocks)[layer], weight_type(source)
        if kind is not None:
            return clone(own, 0, weights=self._quantized.weights(own, layer, kind))
        return own if source is None else self.sources[source].block(layer)

    def apply(
        self, layer: int, state: Tensor, captured: Capture, sublayer: Sublayer | None = None, source: str | None = None
    ) -> Tensor:
        """Run one layer, or only its `sublayer`, on `state`, with the other arguments from `captured`.

        The result has the same shape. Raises `UnsupportedModelError` if the layer cannot be split into sublayers.
        """
        block = self.block(layer, source)
        args, kwargs = self.call(layer, state, captured)
        if sublayer is None:
            return self.note(layer, state, self.returned(block(*args, **kwargs)))
        with only(block, self.branches(captured).paths[layer], sublayer):
            return self.note(layer, state, self.returned(block(*args, **kwargs)))

    def returned(self, output: Any) -> Tensor:
        """Return the hidden state `(batch, seq, ...)` from the output of a block, on the model's first device."""
        state = returned_state(output)
        if state.device != self.device:  # the model is spread over devices
            state = state.to(self.device)
        return tokens_first(state) if self._trace is not None and self._trace.streams_first else state

    def call(self, layer: int, state: Tensor, captured: Capture) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for a layer: `state`, and what `captured` has for the layer.

        If the layer reads earlier states, they are among the arguments. Raises `UnsupportedModelError` if they are
        unknown; see `note`.
        """
        handed = streams_first(state) if self._trace is not None and self._trace.streams_first else state
        args, kwargs = with_state(captured.calls[layer].args, captured.calls[layer].kwargs, handed)
        return args, kwargs if self._tracker is None else {**kwargs, **self._tracker.keywords(layer, state, kwargs)}

    def note(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        """Record that you ran `layer` on `before` and got `after`, and return the state to continue with.

        `apply` does this for you. It matters only for models whose layers read the states of all earlier layers.
        """
        return after if self._tracker is None else self._tracker.note(layer, before, after)

    def changed(self, state: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `change` to a state, for example to select rows or tokens, so that `finish` still accepts it."""
        return change(state) if self._tracker is None else self._tracker.changed(state, change)

    def branches(self, captured: Capture | None = None) -> Branches:
        """Return the submodules that compute the sublayers of each layer.

        They are searched for once, on example inputs or, if these cannot be built, on `captured`. Raises
        `UnsupportedModelError` if a layer cannot be split, and `ModelError` if `captured` is needed.
        """
        if isinstance(self._tracker, HistoryTracker):
            self._unsplit = (
                f"{type(self.model).__name__} cannot be split into attn and mlp: its layers start from a weighted sum "
                "of all earlier states. Use plans without sublayers"
            )
        if self._unsplit is not None:
            raise UnsupportedModelError(self._unsplit)
        if self._branches is None:
            try:
                self._branches = find_branches(self, self._small_batch(captured))
            except UnsupportedModelError as error:
                self._unsplit = str(error)
                raise
        return self._branches

    def _small_batch(self, captured: Capture | None) -> Capture:
        inputs = example_inputs(self.model)
        if inputs is not None:
            return self.capture(**inputs)
        if captured is None:
            raise ModelError(
                f"layerwise cannot build example inputs for {type(self.model).__name__}, which it needs to find the "
                "sublayers. Call stack.branches(stack.capture(**inputs)) once, then use `with stack.under(plan)`."
            )
        return captured

    def states(self, plan: Plan | str, captured: Capture) -> Iterator[Tensor]:
        """Yield the hidden state before the first step of `plan` and after each step.

        Each state is the input of the next step: in a parallel group, every branch starts from the input of the group,
        and the state after the last branch is the merged one.

        Example:
            >>> from layerwise import load
            >>> stack = load("demo")
            >>> captured = stack.capture(input_ids=torch.tensor([[5, 6, 7]]))
            >>> len(list(stack.states("0 2-3", captured)))
            4
        """
        plan = Plan.parse(plan)
        self.check(plan)
        if len(captured.calls) != self.depth:
            raise ModelError(
                f"the batch must have been captured from {self.depth} layers, got {len(captured.calls)}; the list of "
                "blocks was changed, so capture the batch again"
            )
        groups: list[Merger] = []
        state = captured.state
        yield state
        for step in plan.steps():
            state = follow(step, state, self.apply(step.layer, state, captured, step.sublayer, step.source), groups)
            yield state

    def run(self, plan: Plan | str, captured: Capture) -> Tensor:
        """Run `plan` one layer at a time, and return the last hidden state. Faster ways are tested against this one.

        Example:
            >>> from layerwise import load
            >>> stack = load("demo")
            >>> captured = stack.capture(input_ids=torch.tensor([[5, 6, 7]]))
            >>> torch.equal(stack.run("0-11", captured), stack.run("0-11", captured))
            True
        """
        plan = Plan.parse(plan)
        state = captured.state
        for state in self.states(plan, captured):  # noqa: B007  (the last state is the result)
            pass
        return state

    def finish(self, state: Tensor, inputs: Mapping[str, Any]) -> Any:
        """Run the model's own norm, pooler and head on the last hidden state, and return the model's output."""
        self._refuse_while_in_place("finish a state")
        if self._trace is None:
            raise ModelError("finish requires a captured batch; call stack.capture(**inputs) first")
        inputs = accepted(self.model, inputs)
        with occupancy.capturing(self.model, self.path, self.source.name, "finish a state"):
            way = self._tracker.way(state) if isinstance(self._tracker, HistoryTracker) else None
            state = streams_first(state) if self._trace.streams_first else state
            return capture.finish(self.model, self.blocks, self._trace, inputs, state, way)

    def output(self, plan: Plan | str, **inputs: Any) -> Any:
        """Run `plan` one layer at a time, and return the model's output.

        Example:
            >>> from layerwise import load
            >>> stack = load("demo")
            >>> stack.output("0-3 5-11", input_ids=torch.tensor([[5, 6, 7]])).logits.shape[:2]
            torch.Size([1, 3])
        """
        plan = Plan.parse(plan)
        captured = self.capture(**inputs)
        return self.finish(self.run(plan, captured), captured.inputs)

    def logits(self, plan: Plan | str, **inputs: Any) -> Tensor:
        """Run `plan` one layer at a time, and return the logits, or the last hidden state of a model without head.

        Example:
            >>> from layerwise import load
            >>> stack = load("demo")
            >>> stack.logits("0-3 5-11", input_ids=torch.tensor([[5, 6, 7]])).shape[:2]
            torch.Size([1, 3])
        """
        plan = Plan.parse(plan)
        return main_tensor(self.output(plan, **inputs))

    @contextmanager
    def under(self, plan: Plan | str, *, single_pass: bool = False) -> Iterator[Stack]:
        """Make the model itself run `plan` inside the context: in `forward`, `generate`, pipelines and trainers.

        Parameters are shared, and each visit of a layer has its own slot in the KV cache. A cache can be used only
        under the plan that wrote it. Iterating over the blocks and reading `model.config` follow the plan, whereas
        `state_dict`, `save_pretrained`, `to`, `train`, and new hooks and adapters act on the original model. Hooks and
        recorded hidden states see the output of each visit before a group merges it. Copying or pickling the model
        raises `ModelError`. The original model is restored on exit, even if an exception is raised.

        All threads that call the model run the plan. If another thread enters a plan or captures a batch, it gets a
        `ModelError`. Forward passes of the original model that run in another thread when a plan is entered, or while
        layers are inspected (`load`, `verify`, the first plan with sublayers), are not protected.

        Args:
            plan: The layer plan.
            single_pass: Set this if no KV cache is kept between forward passes, as in training and scoring. Layers that
                are visited once are then not wrapped, so that sharding works.

        Example:
            >>> from layerwise import load
            >>> stack = load("demo")
            >>> with stack.under("0-3 5-11"):
            ...     logits = stack.model(input_ids=torch.tensor([[5, 6, 7]])).logits
            >>> logits.shape[:2]
            torch.Size([1, 3])
        """
        plan = Plan.parse(plan)
        self._refuse_while_in_place(f"run {plan}")
        self.check(plan)
        refuse_loss_of_a_kind(self.model, self.path, plan)
        pairs = self.branches().paths if plan.has_sublayers() else ()
        with in_place.in_place(self, plan, pairs, single_pass=single_pass):
            yield self

    def enter(self, plan: Plan | str) -> None:
        """Make the model run `plan` until `leave` is called. `load` does this for compact checkpoints.

        Example:
            >>> from layerwise import load
            >>> stack = load("demo")
            >>> stack.enter("0-3 5-11")
            >>> stack.plan
            Plan('0-3 5-11')
            >>> stack.leave()
        """
        plan = Plan.parse(plan)
        context = self.under(plan)
        context.__enter__()
        # Stored in the model, so that the plan lives as long as the model.
        vars(self.model)[_ENTERED] = context
        self.plan = plan

    def leave(self) -> None:
        """Restore the original order of the layers after `enter`."""
        context = vars(self.model).pop(_ENTERED, None)
        self.plan = None
        if context is not None:
            context.__exit__(None, None, None)

    def _notice_other_blocks(self) -> None:
        blocks = own_blocks(self.blocks)
        if blocks == self._seen_blocks:
            return
        # Layers were replaced, removed or added, so inspect again.
        was_inspected = self._trace is not None
        self._seen_blocks, self._trace, self._tracker = blocks, None, None
        self._branches, self._unsplit, self.head_by_token = None, None, False
        inputs = example_inputs(self.model) if was_inspected else None
        if inputs is not None:
            self.inspect(**inputs)

    def _refuse_while_in_place(self, action: str) -> None:
        for stack in (self, *self.sources.values()):
            occupancy.refuse_while_running(stack.blocks, stack.source.name, action)
