"""`layerwise play`: see in the browser what a plan does."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from layerwise.runner.arguments import Device, Dtype, Location, Metavar, PathLike, Range, Rare, TextLike, Trait
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import verb
from layerwise.swarm.serve.run import address_of, check_libraries, listen, serve_app
from layerwise.swarm.serve.settings import ServeSettings, check_exposure, read_tokens


@verb("play", group="Plans", examples=("demo", "model.gguf", "./my-model --text book.txt --evidence runs/my-model"))
def play(
    model: Annotated[str, Trait.LOCATION, Metavar("MODEL")],
    text: TextLike = None,
    *,
    evidence: Annotated[Sequence[str], Trait.REPEATED, Trait.LOCATION, Metavar("RUN")] = (),
    browser: bool = True,
    host: Rare[Annotated[str, Metavar("HOST")]] = "127.0.0.1",
    port: Annotated[int, Range(least=0, most=65535), Metavar("PORT")] = 8765,
    token_file: Rare[PathLike] = None,
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    reporter: Reporter | None = None,
) -> str:
    """Open a page on which you skip, move and repeat layers, and see how the model's text and loss change.

    The page shows the loss increase when each layer is skipped. It compares what the original model and a plan write,
    scores your text under both, and saves the plan. Layers are measured on short paragraphs that come with layerwise,
    or on TEXT.

    Args:
        model: Hub id, folder, GGUF file, or demo.
        text: Text file, a folder of them, or hf:DATASET.
        evidence: Run of a sweep, whose effects are shown instead of new ones, or of a search; repeat for more.
        browser: Open the page in the browser.
        host: Address to listen on; any address except loopback requires a token.
        port: Port to listen on; 0 picks a free one.
        token_file: File with API keys, one per line; or set LAYERWISE_SWARM_TOKENS.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        tokenizer: Tokenizer, if the model does not include one.
        layers: Module path of the layers, as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The address of the page, after the server was stopped.

    Raises:
        SwarmError: If the address cannot be used, or if a library is missing.
        MeasureError: If the model is not a language model.
    """
    reporter = reporter or Silent()
    tokens = read_tokens(Path(token_file) if token_file else None, os.environ)
    check_exposure(host, tokens)
    check_libraries("web", ("fastapi", "uvicorn"))
    from layerwise.runner.opening import open_stack
    from layerwise.studies.play.app import create_app
    from layerwise.studies.play.playground import Playground

    settings = ServeSettings(host, port, tokens, drain_seconds=0)
    with listen(host, port) as listener:
        stack = open_stack(
            model,
            reporter,
            device=device,
            dtype=dtype,
            tokenizer=tokenizer,
            layers=layers,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        playground = Playground.open(stack, model, None if text is None else str(text), evidence)
        app = create_app(playground, settings)
        address = address_of(listener)

        def announce() -> None:
            reporter.result(f"playground of {model}: {address} (press Ctrl-C to stop)")
            if browser and (sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()):
                webbrowser.open(address)

        serve_app(app, settings, listener, announce)
        app.state.worker.close()
    return address
