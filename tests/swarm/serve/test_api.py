"""OpenAI's API without a network: answers, errors and hostile bodies."""

import json
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from layerwise.errors import BelowQuorumError, OverloadedError, SwarmError
from layerwise.swarm.answer import Answer, Decoding
from swarm.serve.fake import TEXT, FakeSwarm, byte_tokenizer
from swarm.serve.serving import client

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    log, handler = logging.getLogger("layerwise.swarm.serve"), Kept()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield records
    log.removeHandler(handler)
    log.setLevel(level)


def post(service: FakeSwarm, body: Any, path: str = "/v1/completions", **settings: Any) -> tuple[int, dict[str, Any]]:
    with client(service, **settings) as http:
        answer = http.post(path, json=body)
        return answer.status_code, answer.json()


def error(service: FakeSwarm, body: Any, path: str = "/v1/completions", **settings: Any) -> tuple[int, str, str]:
    status, content = post(service, body, path, **settings)
    assert set(content) == {"error"}
    assert set(content["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in content["error"]["message"]
    return status, content["error"]["code"], content["error"]["message"]


def events(text: str) -> list[Any]:
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


NOTHING = {"value": 0.0, "low": 0.0, "high": 0.0, "basis": "complete"}
LACKING = {"value": 0.31, "low": 0.12, "high": 0.55, "basis": "measured"}


def test_a_completion_reports_its_plans() -> None:
    service = FakeSwarm(lost_from=3)
    status, answer = post(service, {"model": "fake/model", "prompt": "Well: ", "max_tokens": 9, "temperature": 0})
    assert status == 200
    assert answer["choices"] == [{"index": 0, "text": "The swarm", "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"] == {"prompt_tokens": 6, "completion_tokens": 9, "total_tokens": 15}
    assert answer["layerwise"] == {
        "plan": "0-3 6-11",
        "missing": [4, 5],
        "expected_nats": LACKING,
        "request": answer["id"],
        "from_token": 3,
        "spans": [
            {**span, "earlier_missing": [], "doubted_nodes": []}
            for span in (
                {"from_token": 0, "to_token": 3, "plan": "0-11", "missing": [], "expected_nats": NOTHING},
                {"from_token": 3, "to_token": 9, "plan": "0-3 6-11", "missing": [4, 5], "expected_nats": LACKING},
            )
        ],
    }
    assert service.prompts[0][1] == Decoding(9)


def test_every_option_reaches_the_swarm() -> None:
    service = FakeSwarm()
    body = {
        "prompt": "a",
        "max_tokens": 30,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_tokens": 2,
        "seed": 7,
        "repetition_penalty": 1.1,
        "min_p": 0.05,
        "stop": ["αβ", "x"],
        "n": 1,
        "echo": False,
        "logprobs": None,
        "best_of": 1,
        "presence_penalty": 0.0,
        "logit_bias": None,
        "user": "ada",
    }
    status, answer = post(service, body)
    assert (status, answer["choices"][0]["text"]) == (200, "The swarm goes on: ")
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert service.prompts[0][1] == Decoding(30, 2, 0.5, 0.9, 5, 1.1, ("αβ", "x"), 7, 0.05)


def test_default_options() -> None:
    service = FakeSwarm()
    assert post(service, {"prompt": "a"})[1]["usage"]["completion_tokens"] == 16
    assert post(service, {"messages": HELLO}, "/v1/chat/completions", max_new_tokens=50)[0] == 200
    completion, chat = (decoding for _, decoding in service.prompts)
    assert (completion.temperature, completion.max_new_tokens) == (1.0, 16)
    assert (chat.temperature, chat.max_new_tokens) == (1.0, 50)
    assert post(service, {"prompt": "a"}, temperature=0.0)[0] == 200
    assert service.prompts[-1][1].temperature == 0.0


def test_prompt_forms() -> None:
    service = FakeSwarm()
    ids = byte_tokenizer()("Hé")["input_ids"]
    for prompt in (ids, [ids], ["Hé"], "Hé"):
        assert post(service, {"prompt": prompt})[0] == 200
    assert {each for each, _ in service.prompts} == {tuple(ids)}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"echo": True, "logprobs": 1, "max_tokens": 2}, "echo"),
        ({"echo": True, "logprobs": 1, "max_tokens": 1, "stream": True}, "echo"),
        ({"min_p": 1.5}, "min_p"),
        ({"logprobs": 0}, "logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [999]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"repetition_penalty": 1e-320}, "repetition_penalty"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2_000}, "max_tokens"),
        ({"min_tokens": 20}, "min_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": "a" * 2_000}, "stop"),
        ({"seed": 2**70}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_unsupported_values_name_the_field(body: dict[str, Any], param: str) -> None:
    with client(FakeSwarm()) as http:
        answer = http.post("/v1/completions", json={"prompt": "a", **body})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert param in answer.json()["error"]["message"]


def test_an_excessive_prompt_is_rejected() -> None:
    service = FakeSwarm(max_length=10)
    status, code, message = error(service, {"prompt": "12345678", "max_tokens": 3})
    assert (status, code) == (400, "context_length_exceeded")
    assert "10 tokens" in message
    assert "8 tokens and 3 new tokens are requested" in message
    assert error(service, {"prompt": "1234567890"})[:2] == (400, "context_length_exceeded")
    assert post(service, {"prompt": "12345678"})[1]["usage"]["completion_tokens"] == 2  # the remaining context


def test_error_statuses() -> None:
    few = "3 of 12 layers are left, and the quorum is 8"
    assert error(FakeSwarm(failures={0: BelowQuorumError(few)}), {"prompt": "a"}) == (503, "below_quorum", few)
    assert error(FakeSwarm(failures={5: BelowQuorumError(few)}), {"prompt": "a"}) == (503, "below_quorum", few)
    assert error(FakeSwarm(failures={0: SwarmError("no node")}), {"prompt": "a"})[:2] == (503, "swarm_error")
    assert error(FakeSwarm(), {"prompt": "a", "model": "gpt-4"})[:2] == (404, "model_not_found")
    assert error(FakeSwarm(allowed=0), {"prompt": "a"}, request_seconds=0.1)[:2] == (504, "deadline_exceeded")
    assert error(FakeSwarm(), {}, "/v1/nothing")[:2] == (404, "not_found")
    assert error(FakeSwarm(), {"image": "aaaa"}, "/v1/classify")[:2] == (400, "unsupported_model")
    assert error(FakeSwarm(tokenizer=None), {"prompt": "a"})[:2] == (400, "unsupported_model")
    with client(FakeSwarm(failures={0: OverloadedError("64 wait", retry_after=2.1)})) as http:
        answer = http.post("/v1/completions", json={"prompt": "a"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["error"]["type"] == "rate_limit_error"


def test_internal_errors_reveal_nothing(logged: list[logging.LogRecord]) -> None:
    status, code, message = error(FakeSwarm(failures={0: RuntimeError("secret")}), {"prompt": "a"})
    assert (status, code) == (500, "internal_error")
    assert "secret" not in message
    assert any("secret" in logging.Formatter().format(record) for record in logged)


def test_a_failure_during_a_stream_is_an_event() -> None:
    service = FakeSwarm(failures={3: BelowQuorumError("too few")})
    with client(service) as http:
        answer = http.post("/v1/completions", json={"prompt": "a", "stream": True})
        *texts, last = events(answer.text)
        assert "".join(each["choices"][0]["text"] for each in texts) == "The"
        assert last["error"]["code"] == "below_quorum"
        metrics = http.get("/metrics").text
    assert 'layerwise_requests_total{endpoint="completions",outcome="refused"} 1.0' in metrics
    with client(FakeSwarm(failures={0: BelowQuorumError("too few")})) as http:
        answer = http.post("/v1/completions", json={"prompt": "a", "stream": True})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "below_quorum")


def test_streaming_yields_the_same_text() -> None:
    body = {"messages": HELLO, "max_completion_tokens": 60, "stop": ["goes on, "]}
    with client(FakeSwarm()) as http:
        whole = http.post("/v1/chat/completions", json=body).json()
        streamed = http.post(
            "/v1/chat/completions", json={**body, "stream": True, "stream_options": {"include_usage": True}}
        )
    *chunks, counts, done = events(streamed.text)
    assert done == "[DONE]"
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert text == (TEXT * 2).encode()[:60].decode(errors="ignore")
    assert all("\ufffd" not in json.dumps(each, ensure_ascii=False) for each in chunks)
    assert [each["choices"][0]["finish_reason"] for each in chunks[-2:]] == [None, "length"]
    assert counts["choices"] == []
    assert counts["usage"] == whole["usage"]
    assert counts["layerwise"]["plan"] == chunks[-1]["layerwise"]["plan"] == "0-11"
    assert all(each["usage"] is None for each in chunks)
    assert len({each["id"] for each in (*chunks, counts)}) == 1


def test_chat_uses_the_template_or_a_plain_format() -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
    parts = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    prompts = {}
    for name, tokenizer in (("template", byte_tokenizer(template)), ("plain", byte_tokenizer())):
        service = FakeSwarm(tokenizer=tokenizer)
        assert post(service, {"messages": parts}, "/v1/chat/completions")[0] == 200
        prompts[name] = tokenizer.decode(service.prompts[0][0]), service.prompts[0][1].stop
    assert prompts["template"] == ("[system]Be brief.[user]Hi[assistant]", ())
    assert prompts["plain"] == ("system: Be brief.\nuser: Hi\nassistant:", ("\nuser:",))


def test_template_errors_and_images_are_rejected() -> None:
    strict = byte_tokenizer("{{ raise_exception('roles must alternate') }}")
    status, _, message = error(FakeSwarm(tokenizer=strict), {"messages": HELLO}, "/v1/chat/completions")
    assert (status, "roles must alternate" in message) == (400, True)
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1"}}]}]
    assert error(FakeSwarm(), {"messages": image}, "/v1/chat/completions")[0] == 400
    assert error(FakeSwarm(), {"messages": []}, "/v1/chat/completions")[0] == 400


HOSTILE = {
    "no json": b"prompt=a",
    "nothing": b"",
    "deep": b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no utf-8": b'{"prompt": "\xff\xfe"}',
    "surrogate": b'{"prompt": "\\ud800"}',
    "surrogate name": b'{"prompt": "a", "\\ud800": 1}',
    "nan": b'{"prompt": "a", "temperature": NaN}',
    "digits": b'{"prompt": "a", "seed": ' + b"9" * 10_000 + b"}",
    "list": b"[]",
    "number": b"1e999",
    "nested prompt": b'{"prompt": [[[1]]]}',
    "name": b'{"prompt": "a", "' + b"x" * 10_000 + b'": 1}',
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/classify"])
def test_a_hostile_body_is_rejected_with_a_short_message(name: str, path: str) -> None:
    with client(FakeSwarm()) as http:
        answer = http.post(path, content=HOSTILE[name], headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert len(answer.json()["error"]["message"]) < 500


def test_an_oversized_body_is_rejected() -> None:
    with client(FakeSwarm(), max_body_bytes=1_000) as http:
        kind = {"Content-Type": "application/json"}
        announced = http.post("/v1/completions", content=b"x" * 1_001, headers=kind)
        in_parts = http.post("/v1/completions", content=iter([b"x" * 600] * 2), headers=kind)
        huge = http.post("/v1/completions", content=b"x", headers={**kind, "Content-Length": "9" * 30})
    for answer in (announced, in_parts, huge):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert answer.headers["connection"] == "close"


def test_models_endpoint() -> None:
    with client(FakeSwarm()) as http:
        (entry,) = http.get("/v1/models").json()["data"]
        assert http.get("/v1/models/fake/model").json() == entry
        assert (entry["id"], entry["object"]) == ("fake/model", "model")
        assert http.get("/v1/models/other").status_code == 404
        assert http.delete("/v1/models/other").json()["error"]["code"] == "method_not_allowed"
        assert http.get("/docs").status_code == 404
        assert "/v1/completions" in http.get("/openapi.json").json()["paths"]


def test_request_ids_and_log_lines(logged: list[logging.LogRecord]) -> None:
    with client(FakeSwarm()) as http:
        given = http.post("/v1/completions", json={"prompt": "a"}, headers={"X-Request-Id": "trace-7"})
        unsafe = http.get("/live%0Aforged", headers={"X-Request-Id": "a b\tstatus=200"})
    assert given.headers["x-request-id"] == "trace-7"
    assert len(unsafe.headers["x-request-id"]) == 32
    first, second = (record.getMessage() for record in logged)
    assert "request=trace-7 method=POST path=/v1/completions status=200" in first
    assert f"outcome=completed answer={given.json()['id']} tokens=16" in first
    assert "path=/live%0Aforged status=404" in second
    assert given.json()["layerwise"]["request"] != "trace-7"  # two clients may choose the same id


def test_tokens_after_a_stop_text_are_ignored() -> None:
    class Unheeding(FakeSwarm):
        def stream(self, ids: Sequence[int], decoding: Decoding, *, request: str) -> AsyncGenerator[int | Answer, None]:
            return super().stream(ids, replace(decoding, stop=()), request=request)

    status, answer = post(Unheeding(), {"prompt": "a", "max_tokens": 40, "stop": "goes"})
    assert (status, answer["choices"][0]["text"]) == (200, "The swarm ")
    assert answer["choices"][0]["finish_reason"] == "stop"
