"""Refusals in the shape that OpenAI's API gives them, so that its clients raise their own errors."""

from __future__ import annotations

import math
from typing import Any

from layerwise.errors import BelowQuorum, Overloaded, SwarmError

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A request that is not answered: the status, and what a client shows its user.

    `code` is one word for programs and `param` the field of the request that is wrong, if one is.
    """

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers or {}
        super().__init__(message)

    def content(self) -> dict[str, Any]:
        """The body: `{"error": {"message", "type", "param", "code"}}`."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message, param = _written(self.message), self.param and _written(self.param)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}


def _written(text: str) -> str:
    """A text that can be sent: what a client wrote may have halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def refusal_of(error: Exception) -> Refusal | None:
    """What an error of the swarm is to a client, or nothing for an error that is a defect.

    >>> refusal_of(Overloaded("64 requests wait", retry_after=1.2)).headers
    {'Retry-After': '2'}
    >>> refusal_of(BelowQuorum("3 of 12 layers are left, and 8 are asked for")).status
    503
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, Overloaded):
        seconds = str(max(1, math.ceil(error.retry_after)))
        return Refusal(429, "overloaded", str(error), headers={"Retry-After": seconds})
    if isinstance(error, BelowQuorum):
        return Refusal(503, "below_quorum", str(error))
    if isinstance(error, SwarmError):
        return Refusal(503, "swarm_error", str(error))
    return None


def defect(request: str) -> Refusal:
    """What a client learns of an error that nobody has foreseen: where the log speaks of it."""
    return Refusal(500, "internal_error", f"the server has a defect; its log speaks of it under request {request}")


def outcome_of(refusal: Refusal) -> str:
    """The word under which a refusal is counted."""
    outcomes = {429: "overloaded", 500: "failed", 503: "refused", 504: "late"}
    if refusal.code == "shutting_down":
        return "stopped"
    return outcomes.get(refusal.status, "invalid")
