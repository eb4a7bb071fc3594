"""The route of a vision model: `/v1/classify`, and images that strangers send, decoded within bounds."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import re
import time
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from PIL import Image, ImageOps
from starlette.responses import JSONResponse, Response

from layerwise.swarm.answer import Answer
from layerwise.swarm.serve.admission import RequestDeadline
from layerwise.swarm.serve.responses import Refusal, WatchedResponse, Write
from layerwise.swarm.serve.schemas import ImageBody, swarm_fields
from layerwise.swarm.serve.state import ServerState

FORMATS = ("PNG", "JPEG", "WEBP")
"""What pillow may decode: its other decoders are many, and seldom tried by enemies."""

_DATA_URL = re.compile(r"data:image/[a-z+.-]+;base64,")


def image_routes(state: ServerState) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/classify")
    async def classify(body: ImageBody, request: Request) -> Response:
        state.check_model(body.model)
        service = state.service
        if service.tokenizer is not None:
            raise Refusal(400, "unsupported_model", f"{service.name} is a language model; see /v1/completions")
        deadline = RequestDeadline(state.settings.request_seconds - (time.monotonic() - request.state.began))
        answers: list[Answer] = []
        name = f"classify-{uuid.uuid4().hex}"

        async def work(_: Write) -> Response:
            async with state.admission.admitted(deadline):
                image = await asyncio.to_thread(decoded, body.image, state.settings.most_image_pixels)
                probabilities, answer = await deadline.wait(service.classify(image, request=name))
            answers.append(answer)
            classes = likeliest(probabilities, service.labels, body.top)
            content = {"id": name, "object": "classification", "model": service.name, "data": classes}
            return JSONResponse({**content, "layerwise": swarm_fields(answer)})

        return WatchedResponse(
            work, lambda ended: state.count("classify", request, ended, answers), request.state.request_id
        )

    return router


def decoded(text: str, most_pixels: int) -> Image.Image:
    """Decode a base64 text or data URL to RGB. Raises `Refusal` for anything else, and for too many pixels."""
    start = _DATA_URL.match(text)
    try:
        content = base64.b64decode(text[start.end() if start else 0 :], validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(
            400,
            "invalid_image",
            "image is neither base64 nor a data URL of an image; write data:image/png;base64,...",
            param="image",
        ) from None
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height <= most_pixels:
                return ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # a decoder may fail in any way on bytes that were made to break it
        message = f"image is no {', '.join(FORMATS)} that can be decoded ({type(error).__name__})"
        raise Refusal(400, "invalid_image", message, param="image") from error
    message = f"the image has {width} x {height} pixels; send at most {most_pixels} of them"
    raise Refusal(413, "image_too_large", message, param="image")


def likeliest(probabilities: Sequence[float], labels: Sequence[str], top: int) -> list[dict[str, Any]]:
    """The classes with the highest probabilities, in order.

    >>> likeliest([0.25, 0.75], ["cat", "dog"], top=1)
    [{'index': 1, 'label': 'dog', 'probability': 0.75}]
    """
    order = sorted(range(len(probabilities)), key=lambda index: -probabilities[index])[:top]
    return [
        {
            "index": index,
            "label": labels[index] if index < len(labels) else str(index),
            "probability": float(probabilities[index]),
        }
        for index in order
    ]
