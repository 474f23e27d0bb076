"""Liveness, readiness and metrics: for machines, without a token.

They need no thread of the pool: the calls there may all be waiting for a broker, and that is no reason to kill the
process, nor to see nothing of it. None of them asks anybody. The metrics of many lanes take a while to write: they have
a thread of their own.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from fastapi import APIRouter, Response
from prometheus_client import generate_latest
from pydantic import BaseModel, ConfigDict

from services.merge.api.calls import answer
from services.merge.api.problems import documented, refusal
from services.merge.api.seam import Parts


class Alive(BaseModel):
    """The process answers."""

    model_config = ConfigDict(frozen=True)

    status: str


def health(parts: Parts) -> APIRouter:
    """Make the calls about the process itself."""
    calls = APIRouter(tags=["process"], responses=documented("internal"))
    writing = ThreadPoolExecutor(1, thread_name_prefix="metrics")

    @calls.get("/healthz", responses={200: answer({"status": "alive"}, "The process answers.")})
    async def healthz() -> Alive:
        """Tell that the process is alive."""
        return Alive(status="alive")

    @calls.get(
        "/readyz",
        response_model=Alive,
        responses={200: answer({"status": "ready"}, "The loop runs."), **documented("not_ready")},
    )
    async def readyz() -> Alive | Response:
        """Tell whether the service does its work."""
        if parts.health.is_running:
            return Alive(status="ready")
        return refusal("not_ready", "the loop has not begun, or is ending: try again in a moment")

    @calls.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "description": "The metrics in Prometheus' text format; docs/metrics.md is the catalogue.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            }
        },
    )
    async def metrics() -> Response:
        """Show the metrics."""
        text = await asyncio.get_running_loop().run_in_executor(writing, generate_latest, parts.registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    return calls
