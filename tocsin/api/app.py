"""The HTTP API as one ASGI app, made of the services that it is given."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse

from tocsin.api import batch, callbacks, health, jobs, openapi, preview, problems, queues, runs
from tocsin.api.asking import asking
from tocsin.api.context import Context
from tocsin.api.reference import reference
from tocsin.api.requests import Gate
from tocsin.api.services import ApiServices
from tocsin.api.writes import Writes

DESCRIPTION: Final = """\
Define jobs, follow their runs. Every write is an event on the log: an answer with 2xx means that the log has it and will \
keep it. Instants are ISO 8601, UTC, with milliseconds; lists are `{"items": [...], "next_cursor": ...}`; errors are \
problem details (RFC 9457) that name each wrong field."""

PAGE_HEADERS: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}

TAGS: Final = [
    {"name": "jobs", "description": "Definitions, and commands to a job."},
    {"name": "runs", "description": "What ran, what runs, what waits."},
    {"name": "dead letters", "description": "Runs that failed for good, and running them again."},
    {"name": "queues", "description": "Which workers a job's runs go to."},
    {"name": "node", "description": "Is it alive, is it ready. /metrics is for Prometheus."},
]


def create_app(services: ApiServices) -> FastAPI:
    """The app; it holds no state but what its own writes need, and several may live in one process."""
    app = FastAPI(
        title="Tocsin",
        summary="A distributed job scheduler: cron at scale, on a log",
        description=DESCRIPTION,
        version=_version(),
        openapi_tags=TAGS,
        openapi_url=None,  # served below: FastAPI's own pages would load their scripts from elsewhere
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    asks = asking(services.queries)
    app.state.context = Context(services=services, asks=asks, writes=Writes(services, asks))
    app.state.batches = batch.new_limit()
    problems.install(app)
    app.add_middleware(Gate, api_key=services.api_key)
    for router in (
        jobs.router,
        batch.router,
        preview.router,
        runs.router,
        callbacks.router,
        queues.router,
        health.router,
    ):
        app.include_router(router)
    app.add_api_route("/openapi.json", lambda: JSONResponse(openapi.document(app)), include_in_schema=False)
    app.add_api_route(
        "/docs",
        lambda: HTMLResponse(reference(openapi.document(app)), headers=PAGE_HEADERS),
        include_in_schema=False,
    )
    return app


def _version() -> str:
    try:
        return version("tocsin")
    except PackageNotFoundError:  # run from a tree that is not installed
        return "0"
