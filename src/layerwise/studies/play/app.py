"""HTTP application of a playground."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

import layerwise
from layerwise.errors import LayerwiseError
from layerwise.measure.interventions.progressive import ProgressiveImportance
from layerwise.plan import Plan
from layerwise.studies.play.commands import run_command, store_text
from layerwise.studies.play.generation import Generator, PromptSettings
from layerwise.studies.play.playground import MAX_NEW_TOKENS, MAX_PLAN, MAX_PROMPT, MAX_TEXT, Playground
from layerwise.studies.play.scoring import Scorer, describe_importance
from layerwise.studies.play.worker import Job, PreemptedError, Worker
from layerwise.swarm.serve.page_files import page_routes
from layerwise.swarm.serve.responses import (
    RequestError,
    RequestGuard,
    WatchedResponse,
    Write,
    event,
    handle_errors,
)
from layerwise.swarm.serve.settings import ServeSettings, check_exposure

MAX_BODY_BYTES = 2**18
"""Maximum size of a request; the longest text takes 80 kB in UTF-8."""

MAX_MEASURED = 3
"""Number of texts whose importance of layers is kept."""


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return text


UnicodeText = Annotated[str, AfterValidator(_check_unicode)]
PastedText = Annotated[UnicodeText, Field(min_length=1, max_length=MAX_TEXT)]


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class PlanBody(Body):
    plan: Annotated[UnicodeText, Field(max_length=MAX_PLAN)]


class PresetsBody(Body):
    first: Annotated[int, Field(ge=0, lt=10_000)]
    last: Annotated[int, Field(ge=0, lt=10_000)]


class ImportanceBody(Body):
    text: PastedText | None = None


class GenerateBody(PlanBody):
    prompt: Annotated[UnicodeText, Field(max_length=MAX_PROMPT)]
    chat: bool = False
    new_tokens: Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)] = 40
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class ScoreBody(PlanBody):
    text: PastedText


class SaveBody(PlanBody):
    output: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
    format: Literal["folder", "gguf"] = "folder"


class StartBody(PlanBody):
    verb: Literal["sweep", "search"]
    budget: Annotated[str, Field(pattern=r"^[a-z]{2,6}=[0-9.]{1,9}x?$")] = "layers=0.75x"
    text: PastedText | None = None


class PlanRequestError(RequestError):
    """A plan that cannot run; `position` is the character at which the parser stopped."""

    def __init__(self, error: LayerwiseError) -> None:
        super().__init__(400, "invalid_plan", getattr(error, "reason", str(error)), param="plan")
        self.position: int | None = getattr(error, "position", None)

    def content(self) -> dict[str, Any]:
        content = super().content()
        return {"error": {**content["error"], "position": self.position}}


def create_app(playground: Playground, settings: ServeSettings) -> FastAPI:
    """Create the application; its worker is `app.state.worker`."""
    check_exposure(settings.host, settings.tokens)
    app = FastAPI(title="layerwise play", version=layerwise.__version__, docs_url=None, redoc_url=None)
    app.add_middleware(RequestGuard, settings=settings)
    worker = app.state.worker = Worker()
    playground.describe_plan(playground.identity)  # counts weights before a plan runs in place
    for router in (page_routes(), plan_routes(playground), work_routes(playground, worker), command_routes(playground)):
        app.include_router(router)
    handle_errors(app, lambda _, refusal: JSONResponse(refusal.content(), refusal.status, refusal.headers))
    return app


def plan_routes(playground: Playground) -> APIRouter:
    router = APIRouter()

    @router.get("/api/state")
    async def state() -> Response:
        return JSONResponse(playground.description)

    @router.post("/api/plan")
    async def plan(body: PlanBody) -> Response:
        # A plan that is being typed is often incomplete; a browser logs each response with an error status.
        try:
            return JSONResponse(playground.describe_plan(_parse(playground, body)))
        except PlanRequestError as refusal:
            return JSONResponse(refusal.content())

    @router.post("/api/presets")
    async def presets(body: PresetsBody) -> Response:
        try:
            return JSONResponse({"presets": playground.make_presets(body.first, body.last)})
        except LayerwiseError as error:
            return JSONResponse(PlanRequestError(error).content())

    return router


def work_routes(playground: Playground, worker: Worker) -> APIRouter:
    router = APIRouter()
    generator, scorer = Generator(playground.stack), Scorer(playground.stack)
    measured = {"": ProgressiveImportance(playground.stack, playground.data)}

    async def write_events(write: Write, work: Callable[[Job], None], *, is_background: bool = False) -> None:
        async with aclosing(worker.stream(work, is_background=is_background)) as events:
            async for item in events:
                await write(event(item))

    @router.post("/api/importance")
    async def importance(body: ImportanceBody, request: Request) -> Response:
        text = body.text or ""
        depth = playground.stack.depth

        def measure_round(job: Job) -> None:
            if text not in measured:  # on the worker's thread, since tokenizers are not safe on several
                measured[text] = ProgressiveImportance(playground.stack, playground.read_text(text))
                if len(measured) > MAX_MEASURED:
                    del measured[[*measured][1]]
            importance = measured[text]
            layers = importance.measure_round(job.check)
            job.emit(describe_importance(importance.scores, layers, depth))

        async def run(write: Write) -> None:
            scores = playground.stored if not text else {}
            while not scores and not (text in measured and measured[text].is_complete):
                if text in measured:
                    await write(event(describe_importance(measured[text].scores, measured[text].scores, depth)))
                try:
                    await write_events(write, measure_round, is_background=True)
                except PreemptedError:
                    continue
            scores = scores or measured[text].scores
            await write(event({**describe_importance(scores, scores, depth), "done": True}))

        return _respond(request, run)

    @router.post("/api/generate")
    async def generate(body: GenerateBody, request: Request) -> Response:
        if not playground.generates:
            raise RequestError(400, "unsupported_model", f"{playground.location} does not generate text.")
        has_template = bool(playground.description["chat"])
        decoding = PromptSettings(body.prompt, body.chat and has_template, body.new_tokens, body.temperature, body.seed)
        work = partial(generator.compare, plan=_parse(playground, body), decoding=decoding)
        return _respond(request, partial(write_events, work=work))

    @router.post("/api/score")
    async def score(body: ScoreBody, request: Request) -> Response:
        plan = _parse(playground, body)

        def work(job: Job) -> None:
            scorer.compare(job, plan, playground.read_text(body.text), playground.compare_sizes(plan))

        return _respond(request, partial(write_events, work=work))

    return router


def command_routes(playground: Playground) -> APIRouter:
    router = APIRouter()
    lock = asyncio.Lock()

    @router.post("/api/save")
    async def save(body: SaveBody, request: Request) -> Response:
        output = f"{body.output}.gguf" if body.format == "gguf" else body.output
        options = playground.save_options(_parse(playground, body), output)
        return _run(request, "save", options)

    @router.post("/api/start")
    async def start(body: StartBody, request: Request) -> Response:
        text = playground.text_path if body.text is None else store_text(body.text)
        if body.verb == "search":
            return _run(request, "search", {**playground.open_options(text), "budget": body.budget})
        return _run(request, "sweep", playground.sweep_options(_parse(playground, body), text))

    def _run(request: Request, verb: str, options: dict[str, Any]) -> Response:
        return _respond(request, partial(run_command, lock, verb, options))

    return router


def _parse(playground: Playground, body: PlanBody) -> Plan:
    try:
        plan = Plan.parse(body.plan)
        playground.stack.check(plan)
    except LayerwiseError as error:
        raise PlanRequestError(error) from None
    return plan


def _respond(request: Request, run: Callable[[Write], Awaitable[None]]) -> Response:
    """Stream what `run` writes; errors of layerwise become refusals."""

    async def work(write: Write) -> None:
        try:
            await run(write)
        except LayerwiseError as error:
            raise RequestError(400, "refused", getattr(error, "reason", str(error))) from error

    return WatchedResponse(work, lambda _: None, request.state.request_id)
