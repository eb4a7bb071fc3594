"""The HTTP application of a swarm: every route, behind one guard, with every error in the shape of OpenAI's API."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

import layerwise
from layerwise.bounded import shown
from layerwise.swarm.serve.generation import generation_routes
from layerwise.swarm.serve.guard import RequestGuard
from layerwise.swarm.serve.images import image_routes
from layerwise.swarm.serve.observation import observation_routes
from layerwise.swarm.serve.responses import Refusal
from layerwise.swarm.serve.settings import ServeSettings, check_exposure
from layerwise.swarm.serve.state import ServerState, Service


def create_app(service: Service, settings: ServeSettings) -> FastAPI:
    check_exposure(settings.host, settings.tokens)
    state = ServerState(service, settings)
    # The pages that FastAPI makes of the routes load their scripts from a CDN; the description itself is kept.
    app = FastAPI(title="layerwise swarm", version=layerwise.__version__, docs_url=None, redoc_url=None)
    app.state.server = state
    app.add_middleware(RequestGuard, settings=settings)
    for routes in (generation_routes, image_routes, observation_routes):
        app.include_router(routes(state))

    def entry() -> dict[str, object]:
        return {"id": service.name, "object": "model", "created": state.created, "owned_by": "layerwise"}

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [entry()]})

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> Response:
        state.check_model(model)
        return JSONResponse(entry())

    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> Response:
        return _answer(state, request, refusal)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _answer(state, request, _refusal_of_body(error))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        message = f"{request.method} {request.url.path[:200]}: {error.detail}"
        return _answer(state, request, Refusal(error.status_code, code, message, headers=dict(error.headers or {})))

    return app


def _answer(state: ServerState, request: Request, refusal: Refusal) -> Response:
    endpoints = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/v1/classify": "classify"}
    if request.url.path in endpoints:
        state.count(endpoints[request.url.path], request, refusal)
    return JSONResponse(refusal.content(), refusal.status, refusal.headers)


def _refusal_of_body(error: RequestValidationError) -> Refusal:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Refusal(400, "invalid_json", "the body is no JSON")
    # Behind the field's name stand the types that it may have, which a union tries in turn.
    field, *inside = first["loc"][1:] or ("body",)
    at = "".join(f"[{each}]" for each in inside if isinstance(each, int))
    value = "" if first["type"] == "missing" else f" ({shown(first['input'])} was sent)"
    return Refusal(400, "invalid_value", f"{field}{at}: {first['msg']}{value}", param=str(field))
