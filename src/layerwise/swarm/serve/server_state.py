"""What the routes share: the service, its settings, the queue, the counts, and the end of the server."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.requests import Request

from layerwise.swarm.answer import Answer
from layerwise.swarm.serve.admission import Admission
from layerwise.swarm.serve.deadline import Drain
from layerwise.swarm.serve.metrics import ServerMetrics
from layerwise.swarm.serve.readiness import Readiness
from layerwise.swarm.serve.refusals import Refusal, outcome_of
from layerwise.swarm.serve.service import Service
from layerwise.swarm.serve.settings import ServeSettings


class ServerState:
    """One served model."""

    def __init__(self, service: Service, settings: ServeSettings) -> None:
        self.service, self.settings = service, settings
        self.admission = Admission(settings.most_running, settings.most_queued)
        self.drain = Drain()
        self.metrics = ServerMetrics(service.overview, self.admission)
        self.readiness = Readiness(service, settings.ready_seconds)
        self.created = int(time.time())

    def check_model(self, model: str | None) -> None:
        """Raise `Refusal` for a request to another model; one that names none is to this."""
        if model is not None and model != self.service.name:
            message = f"the model {model[:80]!r} is not served here; write {self.service.name!r}"
            raise Refusal(404, "model_not_found", message, param="model")

    def count(
        self, endpoint: str, request: Request, ended: Refusal | str | None, answers: Sequence[Answer] = ()
    ) -> None:
        """Count a request that has ended, and add what came of it to its line in the log."""
        if isinstance(ended, Refusal):
            outcome = outcome_of(ended)
        else:
            outcome = ended or ("degraded" if any(answer.missing for answer in answers) else "completed")
        self.metrics.requests.labels(endpoint, outcome).inc()
        self.metrics.request.observe(time.monotonic() - request.state.began)
        line: dict[str, object] = {"outcome": outcome}
        for answer in answers:
            line |= {"answer": answer.request, "tokens": len(answer.tokens)}
        request.state.log = line
