"""What every handler gets: the services of this app, whom to ask, and its writer."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from tocsin.api.asking import Asking
from tocsin.api.services import ApiServices
from tocsin.api.writes import Writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    services: ApiServices
    asks: Asking
    writes: Writes


def _context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


Api = Annotated[Context, Depends(_context)]
