"""Images: decoded within bounds, classified, and refused when they are something else."""

import base64
import io
import struct
import zlib
from typing import Any

import pytest
from PIL import Image

from layerwise.swarm.serve.images import decoded
from layerwise.swarm.serve.responses import Refusal
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import client


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
def test_an_image_is_classified_and_the_answer_says_what_ran(prefix: str) -> None:
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
def test_every_mode_becomes_rgb(kind: str, mode: str) -> None:
    made = decoded(encoded(image(kind, mode=mode)), 100)
    assert (made.mode, made.size) == ("RGB", (4, 3))


def test_an_image_is_turned_as_its_camera_was() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    assert decoded(encoded(image("JPEG", exif=exif)), 100).size == (3, 4)


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("no base64!", 400, "invalid_image"),
        ("ä" * 8, 400, "invalid_image"),
        ("data:text/html;base64,aaaa", 400, "invalid_image"),
        ("https://example.org/cat.png", 400, "invalid_image"),
        (encoded(b""), 400, "invalid_image"),
        (encoded(b"GIF89a" + bytes(50)), 400, "invalid_image"),
        (encoded(image("GIF")), 400, "invalid_image"),  # of the formats that are not decoded
        (encoded(image()[:40]), 400, "invalid_image"),
        (encoded(image("JPEG", (64, 64))[:-100]), 400, "invalid_image"),
        (encoded(bomb(100, 100)), 400, "invalid_image"),  # pixels that are not there
        (encoded(bomb(5_000, 5_000)), 413, "image_too_large"),
        (encoded(bomb(2**31 - 1, 2**31 - 1)), 400, "invalid_image"),
    ],
)
def test_what_is_no_image_is_refused(text: str, status: int, code: str) -> None:
    with pytest.raises(Refusal) as caught:
        decoded(text, 2**24)
    assert (caught.value.status, caught.value.code, caught.value.param) == (status, code, "image")


def test_a_wrong_image_is_the_clients_fault() -> None:
    with client(FakeSwarm(**VISION)) as http:
        answer = http.post("/v1/classify", json={"image": "no base64!"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_image")
        assert http.post("/v1/classify", json={"image": 7}).status_code == 400
        assert http.post("/v1/classify", json={"image": "aaaa", "size": 3}).json()["error"]["param"] == "size"
