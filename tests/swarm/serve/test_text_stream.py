"""Streaming detokenization, and images in requests."""

import base64
import io
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from layerwise.data.text.text_stream import REPLACEMENT, TextStream
from layerwise.swarm.serve.app import decode_image
from layerwise.swarm.serve.responses import RequestError
from swarm.serve.fake import FakeSwarm, byte_tokenizer
from swarm.serve.serving import client

BYTES = byte_tokenizer()


@cache
def byte_fallback() -> PreTrainedTokenizerFast:
    words = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁Hello", "▁world", "▁the", "end", ",", "▁"]
    encoder = tokenizers.Tokenizer(
        models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=[], unk_token="<unk>", byte_fallback=True)
    )
    encoder.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=encoder, eos_token="</s>")


def pieces(tokenizer: Any, tokens: Sequence[int], prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> list[str]:
    stream = TextStream(tokenizer, prompt, stop)
    return [*map(stream.add, tokens), stream.finish()]


@given(st.text(max_size=30), st.text(max_size=10))
def test_streaming_equals_decoding(text: str, prompt: str) -> None:
    tokens, before = (BYTES(each)["input_ids"] for each in (text, prompt))
    made = pieces(BYTES, tokens, before)
    assert "".join(made) == text.rstrip(REPLACEMENT)
    if REPLACEMENT not in text:
        assert all(REPLACEMENT not in each for each in made)


@given(st.lists(st.sampled_from([*range(2, 258), *range(258, 264), *([258, 259, 263] * 40)]), max_size=30))
def test_byte_tokens_among_words_stream_exactly(tokens: list[int]) -> None:
    tokenizer = byte_fallback()
    whole = tokenizer.decode(tokens)
    if REPLACEMENT not in whole:
        assert "".join(pieces(tokenizer, tokens)) == whole


def test_a_leading_space_is_kept() -> None:
    tokenizer = byte_fallback()
    hello, world = tokenizer.convert_tokens_to_ids(["▁Hello", "▁world"])
    assert tokenizer.decode([world]) == "world"
    assert pieces(tokenizer, [world], prompt=[hello]) == [" world", ""]
    assert pieces(tokenizer, [world]) == ["world", ""]


@pytest.mark.parametrize("characters", range(1, 9))
def test_a_prompt_may_end_with_byte_tokens(characters: int) -> None:
    tokenizer = byte_fallback()
    prompt = [2 + byte for byte in ("日本" * 4)[:characters].encode()]
    new = [2 + byte for byte in "語 ok".encode()]
    assert "".join(pieces(tokenizer, new, prompt)) == "語 ok"


@pytest.mark.parametrize(
    ("tokenizer", "before", "bytes_", "after"),
    [
        (BYTES, BYTES("a")["input_ids"], BYTES("😀")["input_ids"], BYTES("end")["input_ids"]),
        (byte_fallback(), [258], [2 + byte for byte in "😀".encode()], [261]),
    ],
)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_prompt_may_end_within_a_character(
    tokenizer: Any, before: list[int], bytes_: list[int], after: list[int], cut: int
) -> None:
    prompt = [*before, *bytes_[:-cut]]
    assert "".join(pieces(tokenizer, after, prompt)) == "end"
    assert "".join(pieces(tokenizer, [*bytes_[-cut:], *after], prompt)) == "😀end"


@given(st.lists(st.sampled_from(range(264)), max_size=9), st.lists(st.sampled_from(range(264)), max_size=12))
def test_invalid_bytes_are_not_emitted_at_the_end(prompt: list[int], tokens: list[int]) -> None:
    made = "".join(pieces(byte_fallback(), tokens, prompt))
    assert not made.endswith(REPLACEMENT)


def test_partial_characters_are_never_emitted() -> None:
    tokens = BYTES("a😀")["input_ids"][:-1]
    assert pieces(BYTES, tokens) == ["a", "", "", "", ""]


def test_special_tokens_have_no_text() -> None:
    assert pieces(BYTES, [*BYTES("hi")["input_ids"], 0]) == ["h", "i", "", ""]


@given(st.text(alphabet="abc", max_size=12), st.lists(st.text(alphabet="abc", min_size=1, max_size=3), max_size=3))
def test_the_text_ends_before_the_first_stop(text: str, stops: list[str]) -> None:
    stream = TextStream(BYTES, (), stops)
    made, ended = "", None
    for count, token in enumerate(BYTES(text)["input_ids"], 1):
        made += stream.add(token)
        assert not any(stop in made for stop in stops)
        if stream.stopped and ended is None:
            ended = count
    made += stream.finish()
    first = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
    # Of two stop texts the one that is complete first ends the text, even where the other begins before it.
    completed = min((text.find(stop) + len(stop) for stop in stops if stop in text), default=None)
    assert ended == completed
    if first is None:
        assert made == text
    else:
        expected = min(at for stop in stops if (at := text[:completed].find(stop)) >= 0)
        assert made == text[:expected]


def test_possible_stop_texts_are_held_back() -> None:
    made = pieces(BYTES, BYTES("one\nuse it")["input_ids"], stop=["\nuser:"])
    assert made[:4] == ["o", "n", "e", ""]
    assert made[7] == "\nuse "
    assert "".join(made) == "one\nuse it"


def image(kind: str = "PNG", size: tuple[int, int] = (4, 3), mode: str = "RGB", **options: Any) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", size, (255, 0, 0)).convert(mode).save(made, kind, **options)
    return made.getvalue()


def encoded(content: bytes, prefix: str = "") -> str:
    return prefix + base64.b64encode(content).decode()


def bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0" * 1_000)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


VISION: dict[str, Any] = {"tokenizer": None, "labels": ("red", "not red")}


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_classification_reports_its_plan(prefix: str) -> None:
    with client(FakeSwarm(**VISION)) as http:
        answer = http.post("/v1/classify", json={"model": "fake/model", "image": encoded(image(), prefix), "top": 2})
        metrics = http.get("/metrics").text
    content = answer.json()
    assert answer.status_code == 200
    assert content["data"] == [
        {"index": 0, "label": "red", "probability": 0.9},
        {"index": 2, "label": "2", "probability": 0.1},
    ]
    assert content["layerwise"]["missing"] == [4, 5]
    assert content["layerwise"]["request"] == content["id"]
    assert 'endpoint="classify",outcome="degraded"} 1.0' in metrics


@pytest.mark.parametrize(
    ("kind", "mode"), [("PNG", "RGBA"), ("PNG", "P"), ("PNG", "L"), ("PNG", "1"), ("JPEG", "CMYK"), ("WEBP", "RGB")]
)
def test_image_modes_become_rgb(kind: str, mode: str) -> None:
    made = decode_image(encoded(image(kind, mode=mode)), 100)
    assert (made.mode, made.size) == ("RGB", (4, 3))


def test_uploaded_images_respect_exif_orientation() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    assert decode_image(encoded(image("JPEG", exif=exif)), 100).size == (3, 4)


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("no base64!", 400, "invalid_image"),
        ("ä" * 8, 400, "invalid_image"),
        ("data:text/html;base64,aaaa", 400, "invalid_image"),
        ("https://example.org/cat.png", 400, "invalid_image"),
        (encoded(b""), 400, "invalid_image"),
        (encoded(b"GIF89a" + bytes(50)), 400, "invalid_image"),
        (encoded(image("GIF")), 400, "invalid_image"),  # of the formats that are not decode_image
        (encoded(image()[:40]), 400, "invalid_image"),
        (encoded(image("JPEG", (64, 64))[:-100]), 400, "invalid_image"),
        (encoded(bomb(100, 100)), 400, "invalid_image"),  # pixels that are not there
        (encoded(bomb(5_000, 5_000)), 413, "image_too_large"),
        (encoded(bomb(2**31 - 1, 2**31 - 1)), 400, "invalid_image"),
    ],
)
def test_invalid_images_are_rejected(text: str, status: int, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_image(text, 2**24)
    assert (caught.value.status, caught.value.code, caught.value.param) == (status, code, "image")


def test_an_invalid_image_is_a_client_error() -> None:
    with client(FakeSwarm(**VISION)) as http:
        answer = http.post("/v1/classify", json={"image": "no base64!"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_image")
        assert http.post("/v1/classify", json={"image": 7}).status_code == 400
        assert http.post("/v1/classify", json={"image": "aaaa", "size": 3}).json()["error"]["param"] == "size"
