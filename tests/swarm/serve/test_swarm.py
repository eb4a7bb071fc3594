"""The server on a real swarm."""

import base64
import io
from collections.abc import Iterator
from dataclasses import replace

import httpx
import numpy as np
import openai
import pytest
import torch
from PIL import Image

import layerwise
from layerwise.stack import Stack
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes.local import Fault, LocalTransport
from layerwise.swarm.serve.app import decode_image
from layerwise.swarm.settings import Quorum, SwarmSettings
from swarm.serve.serving import PATIENCE, Served, client, run_server

pytestmark = pytest.mark.slow

PROMPTS = ("reverse k d a z =", "reverse b c =", "calc 40+7-2 =", "def main(", "é 😀 ")
NEW = 12


@pytest.fixture(scope="module")
def stack() -> Stack:
    return layerwise.load("demo")


@pytest.fixture
def server(stack: Stack) -> Iterator[Served]:
    settings = SwarmSettings(quorum=Quorum(layers=4), first_deadline=5.0, health_seconds=60.0)
    swarm = gather(stack, nodes=4, replicas=2, settings=settings)
    with run_server(swarm) as running:
        yield running


@pytest.fixture
def asking(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as made:
        yield made


def fail_nodes(server: Served, *names: str) -> None:
    transport = server.service._transport
    assert isinstance(transport, LocalTransport)
    faults = tuple(Fault(name, "fail", 0.0) for name in names)
    transport.schedule = replace(transport.schedule, faults=transport.schedule.faults + faults)


def generated(stack: Stack, prompt: str) -> str:
    ids = stack.tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        written = stack.model.generate(ids, max_new_tokens=NEW, do_sample=False)
    return stack.tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True).rstrip("\ufffd")


def test_http_text_equals_generate(stack: Stack, server: Served, asking: openai.OpenAI) -> None:
    for prompt in PROMPTS:
        whole = asking.completions.create(model="demo", prompt=prompt, max_tokens=NEW, temperature=0)
        assert whole.choices[0].text == generated(stack, prompt)
        assert whole.model_extra["layerwise"]["expected_nats"]["basis"] == "complete"
    sampled = [
        asking.completions.create(model="demo", prompt="def ", max_tokens=NEW, seed=7).choices[0].text for _ in range(2)
    ]
    assert sampled[0] == sampled[1]


def test_prompt_scoring_works_with_lm_eval(stack: Stack, server: Served) -> None:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    ids = stack.tokenizer("reverse k d a z = z a d k")["input_ids"]
    body = {"model": "demo", "prompt": [ids], "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/completions", json={**body, "seed": 1234}, timeout=PATIENCE).json()
    with torch.inference_mode():
        chances = stack.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    own = [chances[place, token].item() for place, token in enumerate(ids[1:])]
    (choice,) = answer["choices"]
    assert choice["logprobs"]["token_logprobs"][1:-1] == pytest.approx(own, abs=1e-5)
    assert choice["logprobs"]["text_offset"][-1] == len("".join(choice["logprobs"]["tokens"][:-1]))
    assert choice["text"] == "".join(choice["logprobs"]["tokens"])
    assert answer["usage"]["completion_tokens"] == 1
    for context in range(1, len(ids)):
        ((total, is_greedy),) = LocalCompletionsAPI.parse_logprobs(answer, [ids], [context])
        assert total == pytest.approx(sum(own[context - 1 :]), abs=1e-4)
        assert is_greedy == (chances[context - 1 : -1].argmax(-1).tolist() == ids[context:])


def test_nodes_fail_while_a_client_reads(stack: Stack, server: Served, asking: openai.OpenAI) -> None:
    overview = server.service.overview()
    held = {node.name: {int(layer) for layer in node.layers} for node in overview.nodes}
    first, second = next(
        (one, other) for one in held for other in held if one < other and 0 < len(held[one] & held[other]) <= 8
    )
    greedy = {"model": "demo", "prompt": PROMPTS[0], "temperature": 0}
    stream = iter(asking.completions.create(**greedy, max_tokens=NEW, stream=True))
    texts = [next(stream).choices[0].text]
    fail_nodes(server, first)
    chunks = list(stream)
    texts += [chunk.choices[0].text for chunk in chunks]
    assert "".join(texts) == generated(stack, PROMPTS[0])
    assert chunks[-1].model_extra["layerwise"]["missing"] == []
    fail_nodes(server, second)
    answer = asking.completions.create(**greedy, max_tokens=4)
    assert set(answer.model_extra["layerwise"]["missing"]) == held[first] & held[second]
    assert answer.model_extra["layerwise"]["expected_nats"]["basis"] == "unknown"


def test_classification_over_http() -> None:
    stack = layerwise.load("demo-vit")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    image = base64.b64encode(file.getvalue()).decode()
    swarm = gather(stack, nodes=2, replicas=1)
    values = swarm.preprocess_image(decode_image(image, 10_000))
    with torch.inference_mode():
        expected = torch.softmax(stack.model(pixel_values=values).logits[0], dim=-1)
    with client(swarm) as http:
        answer = http.post("/v1/classify", json={"image": image, "top": 3})
    assert answer.status_code == 200, answer.text
    assert answer.json()["layerwise"]["missing"] == []
    best = answer.json()["data"]
    assert [each["index"] for each in best] == expected.topk(3).indices.tolist()
    assert [each["probability"] for each in best] == pytest.approx(expected.topk(3).values.tolist(), abs=1e-6)
