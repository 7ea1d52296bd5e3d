"""What a route declares about itself, where it is written: its access, its problems' codes, the jobs that it queues.

open    needs no token: health, and what it takes to sign in. The guard lets nothing else pass without one.
read    answers from what is here.
compute works for its answer: it parses, lowers, advises, compiles, exports or starts a program. Another site's page may
        link to it and not embed or fetch it (app.web.server.security). GET reaches these two and open ones, nothing
        else.
change  changes what is stored.
work    queues a job, or keeps torch busy.
upload  the same, with files in the body: app.requests.uploads counts them, all other bodies are small.

A route that declares nothing keeps the server from starting (app.web.server.contract).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from app.objects.job import JobKind
from app.web.server.codes import Codes, join_codes

Endpoint = TypeVar("Endpoint")


class Access(StrEnum):
    """See the module."""

    OPEN = "open"
    READ = "read"
    COMPUTE = "compute"
    CHANGE = "change"
    WORK = "work"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What one route declares. codes: by status, those of its own problems. queues: the kind of job that it queues.

    most_bytes: of an upload, where that is not the setting's.
    """

    access: Access
    codes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    queues: JobKind | None = None
    most_bytes: int | None = None


_ATTRIBUTE = "__declaration__"


def declare(
    access: Access, *, codes: tuple[Codes, ...] = (), queues: JobKind | None = None, most_bytes: int | None = None
) -> Callable[[Endpoint], Endpoint]:
    """Decorator of an endpoint, below its router's: `@router.get(...)`, then `@declare(Access.READ)`.

    codes: groups of app.web.server.codes, or status -> codes; only operations of /openapi.json need them. queues:
    answers of this route of the API tell how many more jobs of that kind may wait, and most_bytes how large its body
    may be (app.web.server.limits).
    """
    declaration = Declaration(access, join_codes(*codes), queues, most_bytes)

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _ATTRIBUTE, declaration)
        return endpoint

    return mark


def declaration_of(endpoint: object) -> Declaration | None:
    """What an endpoint, or a mounted application, declares; None where it declares nothing."""
    declaration: Declaration | None = getattr(endpoint, _ATTRIBUTE, None)
    return declaration
