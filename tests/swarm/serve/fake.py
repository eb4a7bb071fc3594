"""A fake swarm without layers, with scripted tokens, delays and failures."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from layerwise.data.text.text_stream import TextStream
from layerwise.swarm.answer import (
    Answer,
    Decoding,
    Event,
    ExpectedCost,
    NodeView,
    Overview,
    PromptScores,
    RequestView,
    TokenSpan,
)

TEXT = "The swarm goes on: αβγ 😀 日本.\n"
DEPTH = 12
HELD = (range(6), range(6, 12), (*range(3), *range(6, 9)), (*range(3, 6), *range(9, 12)))
LOST = ExpectedCost(0.31, 0.12, 0.55, "measured")


def byte_tokenizer(template: str | None = None) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<end>", *alphabet]
    encoder = tokenizers.Tokenizer(models.BPE(vocab={name: at for at, name in enumerate(names)}, merges=[]))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    encoder.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=encoder, eos_token="<end>")
    made.chat_template = template
    return made


@dataclass
class FakeSwarm:
    name: str = "fake/model"
    text: str = TEXT
    endless: bool = True
    delay: float = 0.0
    allowed: float = math.inf  # tokens that a request may have so far; tests raise it
    failures: dict[int, Exception] = field(default_factory=dict)  # by the number of tokens before it
    lost_from: int | None = None  # the tokens after which two layers are missing
    max_length: int | None = 4096
    labels: Sequence[str] = ()
    tokenizer: Any = field(default_factory=byte_tokenizer)
    is_ready: tuple[bool, str] = (True, "")
    is_over: bool = False
    seconds: float = 12.5  # since it was gathered

    def __post_init__(self) -> None:
        self.prompts: list[tuple[tuple[int, ...], Decoding]] = []
        self.resumed: list[tuple[int, ...]] = []  # the tokens of each that another swarm had made
        self.running: dict[str, int] = {}
        self.started: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.closed = False
        self.checks = self.completed = self.refused = self.degraded = self.made = 0
        self.events: list[Event] = [Event(0.0, "joined", "4 nodes hold 12 layers, 2 replicas each")]
        self.nodes = tuple(
            NodeView(f"node-{at}", tuple(str(n) for n in held), "live", 0.0112, 0.031, at % 2, 840 + at, 0)
            for at, held in enumerate(HELD)
        )

    async def stream(
        self, ids: Sequence[int], decoding: Decoding, *, request: str, made: Sequence[int] = ()
    ) -> AsyncGenerator[int | Answer, None]:
        self.prompts.append((tuple(ids), decoding))
        self.resumed.append(tuple(made))
        self.running[request] = 0
        script = self.tokenizer(self.text, add_special_tokens=False)["input_ids"]
        stream, made = TextStream(self.tokenizer, ids, decoding.stop), list(made)
        self.started[request] = len(made)
        finish = "length"
        try:
            while len(made) < decoding.max_new_tokens:
                if len(made) in self.failures:
                    self.refused += 1
                    raise self.failures[len(made)]
                await asyncio.sleep(self.delay)
                while len(made) >= self.allowed:
                    await asyncio.sleep(0.001)
                if len(made) == len(script) and not self.endless:
                    finish = "stop"
                    break
                made.append(script[len(made) % len(script)])
                self.running[request] = len(made)
                self.made += 1
                yield made[-1]
                stream.add(made[-1])
                if stream.stopped:
                    finish = "stop"
                    break
            answer = Answer(request, tuple(made[self.started[request] :]), finish, self.spans(request))
            self.completed += 1
            self.degraded += not answer.is_complete
            yield answer
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.append(request)
            raise
        finally:
            del self.running[request]

    def spans(self, request: str) -> tuple[TokenSpan, ...]:
        first = self.started[request]
        count = self.running[request] - first
        at = count if self.lost_from is None else min(self.lost_from, count)
        spans = (TokenSpan(0, at, "0-11"), TokenSpan(at, count, "0-3 6-11", (4, 5), LOST))
        return tuple(span for span in spans if span.stop > span.start)

    def lose(self, name: str) -> None:
        self.nodes = tuple(
            replace(node, state="gone", reason="its process has ended") if node.name == name else node
            for node in self.nodes
        )
        self.events.append(Event(61.0 + len(self.events), "lost", f"{name} has failed", node=name))

    async def score(self, ids: Sequence[int], *, request: str) -> tuple[PromptScores, Answer]:
        count = len(ids)
        scores = PromptScores((-0.5,) * (count - 1), (1,) * count, (-0.25,) * count)
        return scores, Answer(request, (), "stop", (TokenSpan(0, 1, "0-11"),))

    async def classify(self, image: Any, *, request: str) -> tuple[Sequence[float], Answer]:
        assert image.mode == "RGB"
        red = image.getpixel((0, 0))[0] / 255
        answer = Answer(request, (), "stop", (TokenSpan(0, 1, "0-3 6-11", (4, 5), LOST),))
        return (red * 0.9, (1 - red) * 0.9, 0.1), answer

    def overview(self) -> Overview:
        live = {int(layer) for node in self.nodes if node.state == "live" for layer in node.layers}
        running = tuple(RequestView(request, tokens, "0-11", ()) for request, tokens in list(self.running.items()))
        return Overview(
            self.name,
            DEPTH,
            self.seconds,
            self.nodes,
            running,
            self.completed,
            self.refused,
            self.degraded,
            self.made,
            tuple(sorted(live)),
            "at least 8 of 12 layers",
            tuple(self.events),
        )

    async def ready(self) -> tuple[bool, str]:
        self.checks += 1
        return self.is_ready

    async def close(self) -> None:
        self.closed = True
