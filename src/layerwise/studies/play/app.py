"""HTTP application of a playground."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

import layerwise
from layerwise.errors import LayerwiseError
from layerwise.measure.interventions.progressive import ProgressiveImportance
from layerwise.studies.play.commands import run_command, store_text
from layerwise.studies.play.findings import state_layers
from layerwise.studies.play.generation import Generator, PromptSettings
from layerwise.studies.play.playground import MAX_NEW_TOKENS, MAX_PLAN, MAX_PROMPT, MAX_TEXT, Playground
from layerwise.studies.play.scoring import Scorer, describe_effect
from layerwise.studies.play.worker import Item, Job, StoppedError, Worker
from layerwise.swarm.serve.page_files import page_routes
from layerwise.swarm.serve.responses import RequestError, RequestGuard, WatchedResponse, Write, event, handle_errors
from layerwise.swarm.serve.settings import ServeSettings

MAX_MEASURED = 3
"""Number of texts whose importance of layers is kept."""

PastedText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class PlanBody(Body):
    plan: Annotated[str, Field(max_length=MAX_PLAN)]


class ImportanceBody(Body):
    text: PastedText | None = None


class GenerateBody(PlanBody):
    prompt: Annotated[str, Field(max_length=MAX_PROMPT)]
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


def create_app(playground: Playground, settings: ServeSettings) -> FastAPI:
    """Create the application; its worker is `app.state.worker`."""
    app = FastAPI(title="layerwise play", version=layerwise.__version__, docs_url=None, redoc_url=None)
    app.add_middleware(RequestGuard, settings=settings)
    app.state.worker = Worker()
    playground.describe_plan(playground.identity)  # counts weights before a plan runs in place
    app.include_router(page_routes())
    add_plan_routes(app, playground)
    add_work_routes(app, playground, app.state.worker)
    add_command_routes(app, playground)
    handle_errors(app, lambda _, refusal: JSONResponse(refusal.content(), refusal.status, refusal.headers))
    app.add_exception_handler(LayerwiseError, _refuse_plan)
    return app


async def _refuse_plan(request: Request, error: Exception) -> Response:
    """Refuse a plan that cannot run; `position` is the character at which the parser stopped."""
    content = RequestError(400, "invalid_plan", getattr(error, "reason", str(error)), param="plan").content()
    content["error"]["position"] = getattr(error, "position", None)
    # A plan that is being typed is often incomplete, and a browser logs each response with an error status.
    return JSONResponse(content, 200 if request.url.path == "/api/plan" else 400)


def add_plan_routes(app: FastAPI, playground: Playground) -> None:
    @app.get("/api/state")
    async def state() -> Response:
        return JSONResponse(playground.description)

    @app.post("/api/plan")
    async def plan(body: PlanBody) -> Response:
        return JSONResponse(playground.describe_plan(playground.parse_plan(body.plan)))


def add_work_routes(app: FastAPI, playground: Playground, worker: Worker) -> None:
    generator, scorer = Generator(playground.stack), Scorer(playground.stack)
    measured = {"": ProgressiveImportance(playground.stack, playground.data, playground.stored)}

    async def write_events(write: Write, work: Callable[[Job], None], *, is_background: bool = False) -> None:
        async with aclosing(worker.stream(work, is_background=is_background)) as events:
            async for item in events:
                await write(event(item))

    @app.post("/api/importance")
    async def importance(body: ImportanceBody, request: Request) -> Response:
        text = body.text or ""

        def measure_round(job: Job) -> None:
            if text not in measured:  # on the worker's thread, since tokenizers are not safe on several
                measured[text] = ProgressiveImportance(playground.stack, playground.read_text(text))
                if len(measured) > MAX_MEASURED:
                    del measured[[*measured][1]]  # the first one is the default text
            measured[text].measure_round(job.check)

        async def run(write: Write) -> None:
            while text not in measured or not measured[text].is_complete:
                if text in measured:
                    await write(event(describe_importance(measured[text])))
                with suppress(StoppedError):
                    await write_events(write, measure_round, is_background=True)
            await write(event(describe_importance(measured[text])))

        return _respond(request, run)

    @app.post("/api/generate")
    async def generate(body: GenerateBody, request: Request) -> Response:
        if not playground.generates:
            raise RequestError(400, "unsupported_model", f"{playground.location} does not generate text.")
        settings = PromptSettings(body.prompt, body.chat, body.new_tokens, body.temperature, body.seed)
        work = partial(generator.compare, plan=playground.parse_plan(body.plan), settings=settings)
        return _respond(request, partial(write_events, work=work))

    @app.post("/api/score")
    async def score(body: ScoreBody, request: Request) -> Response:
        plan = playground.parse_plan(body.plan)

        def work(job: Job) -> None:
            scorer.compare(job, plan, playground.read_text(body.text), playground.compare_sizes(plan))

        return _respond(request, partial(write_events, work=work))


def describe_importance(importance: ProgressiveImportance) -> Item:
    """Return the loss increases measured so far, the number of layers that have an interval, and the finding."""
    is_final = importance.is_complete
    scores = importance.scores
    layers = [{"layer": layer, **describe_effect(score)} for layer, score in scores.items()]
    count = sum(score.low is not None for score in scores.values())
    finding = state_layers(scores, is_final=is_final) if count == importance.stack.depth else None
    total = importance.data.tokens * importance.stack.depth
    done = {"done": True} if is_final else {}
    return {"layers": layers, "measured": count, "finding": finding, "total_tokens": total, **done}


def add_command_routes(app: FastAPI, playground: Playground) -> None:
    run = partial(run_command, asyncio.Lock())

    @app.post("/api/save")
    async def save(body: SaveBody, request: Request) -> Response:
        output = f"{body.output}.gguf" if body.format == "gguf" else body.output
        options = playground.save_options(playground.parse_plan(body.plan), output)
        return _respond(request, partial(run, "save", options))

    @app.post("/api/start")
    async def start(body: StartBody, request: Request) -> Response:
        plan = playground.parse_plan(body.plan)
        text = playground.text_path if body.text is None else store_text(body.text)
        sweep, search = playground.sweep_options(plan, text), playground.search_options(text, body.budget)
        return _respond(request, partial(run, body.verb, sweep if body.verb == "sweep" else search))


def _respond(request: Request, run: Callable[[Write], Awaitable[None]]) -> Response:
    """Stream what `run` writes; errors of layerwise become refusals."""

    async def work(write: Write) -> None:
        try:
            await run(write)
        except LayerwiseError as error:
            raise RequestError(400, "refused", str(error)) from error

    return WatchedResponse(work, lambda _: None, request.state.request_id)
