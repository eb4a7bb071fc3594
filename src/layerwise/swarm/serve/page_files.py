"""The files of the page of `layerwise play` and `layerwise serve`."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

PAGE = files("layerwise.swarm.serve") / "page"

TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript"}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> APIRouter:
    router = APIRouter()

    @router.get("/")
    async def page() -> Response:
        return _read("index.html")

    @router.get("/page/{name}")
    async def part(name: str) -> Response:
        return _read(name)

    return router


def _read(name: str) -> Response:
    if name not in (each.name for each in PAGE.iterdir()):
        raise HTTPException(404, "Not Found")
    return Response((PAGE / name).read_bytes(), media_type=TYPES[name.rpartition(".")[2]], headers=HEADERS)
