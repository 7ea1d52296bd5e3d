"""/openapi.json: what FastAPI writes from the routes, with what it cannot know: every error, header, sign-in, example.

tests/app/web/api holds the server to it, operation by operation.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from fastapi import FastAPI

from app.check.formats import BY_SUFFIX
from app.check.schema import assertions_schema, check_schema
from app.errors import TITLES
from app.requests.regions import MAX_CANDIDATES
from app.web.api.responses import problem_schema
from app.web.server.access import Access, Declaration
from app.web.server.contract import Contract

Json: TypeAlias = dict[str, Any]
"""A part of the description, as FastAPI makes it."""

EXAMPLES = Path(__file__).with_name("examples.json")
"""Answers as a server gave them, written by `tools/checks/check_api.py --examples`."""

EVERYWHERE = (400, 429, 500, 503)
"""A host that is not ours or a request that cannot be read; too many requests; our fault; too many connections."""
WITH_TOKEN = (401,)
CHANGING = (403, 408, 413)

PROBLEM = {"$ref": "#/components/schemas/Problem"}

HEADERS: dict[str, Json] = {
    "ETag": {"description": "Of this answer, compressed or not. Send it as If-None-Match to be told 304 if unchanged."},
    "Location": {"description": "Where the new thing, or the job that makes it, is."},
    "Link": {"description": 'The next page of the list: rel="next".'},
    "Retry-After": {"description": "Seconds after which it is worth asking again."},
    "RateLimit": {"description": "Places that are free in the queue of this kind of job."},
    "RateLimit-Policy": {"description": "Places that the queue has."},
    "Upload-Limit": {"description": "Largest body in bytes: max-size=N."},
}

FORMATS = {"region": "region", "region_id": "id", "device": "device"}
"""Names of fields whose texts are more than any text -> the format that says so."""


def describe(app: FastAPI, contract: Contract) -> Callable[[], Json]:
    """`app.openapi` of an application: FastAPI's description, completed once by what its routes declare."""
    plain = app.openapi

    def complete() -> Json:
        if app.openapi_schema is None or not app.openapi_schema.get("x-complete"):
            app.openapi_schema = None
            app.openapi_schema = complete_description(plain(), contract)
        return app.openapi_schema

    return complete


def complete_description(document: Json, contract: Contract) -> Json:
    """A description with every error, header and example."""
    described = copy.deepcopy(document)
    schemas = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = problem_schema()
    described["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "Where the server has a token."}
    }
    described["components"]["headers"] = {name: {**h, "schema": {"type": "string"}} for name, h in HEADERS.items()}
    for path, method, operation in operations(described):
        _complete(path, method.upper(), operation, contract)
    _forms(described)
    described["x-complete"] = True
    return described


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """(path, method, operation) of a description."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def operation_id(method: str, path: str) -> str:
    """`get-traces-trace_id`: what examples are called by."""
    parts = [p.strip("{}").replace("}.{", "-") for p in path.removeprefix("/api/v1").split("/") if p]
    return "-".join([method.lower(), *parts])


def _complete(path: str, method: str, operation: Json, contract: Contract) -> None:
    declared = contract.declarations[method, path]
    access = declared.access
    name = operation_id(method, path)
    operation["operationId"] = name
    operation["security"] = [] if access is Access.OPEN else [{"token": []}, {}]
    responses = operation["responses"]
    known = {int(status) for status in responses if status.isdigit()}
    more = {*EVERYWHERE, *(() if access is Access.OPEN else WITH_TOKEN), *(CHANGING if method != "GET" else ())}
    for status in sorted(more | {s for s in known if s >= 400} | set(declared.codes)):
        responses[str(status)] = _problem(status, contract.codes(method, path, status))
    _successes(path, method, responses, declared)
    _parameters(operation)
    _examples(name, operation)
    operation["responses"] = dict(sorted(responses.items()))


def _problem(status: int, codes: Iterable[str]) -> Json:
    headers = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}} if status in (429, 503) else {}
    more = {"headers": headers} if headers else {}
    title = TITLES.get(status, "The request did not come in time" if status == 408 else "Error")
    told = ", ".join(f"`{code}*`" if code.endswith("-") else f"`{code}`" for code in codes)
    content = {"application/problem+json": {"schema": PROBLEM}}
    return {"description": f"{title}. Codes: {told}" if told else title, "content": content, **more}


def _successes(path: str, method: str, responses: Json, declared: Declaration) -> None:
    for status in [s for s in responses if s.startswith("2")]:
        answer = responses[status]
        names = []
        if method == "GET" and path.startswith("/api/") and not path.endswith("/events"):
            names.append("ETag")
            responses.setdefault("304", {"description": "Not modified: it is as it was when you had its ETag."})
        if (method == "GET" and "after" in path) or (method == "GET" and _is_list(answer)):
            names.append("Link")
        if method == "POST" and status in ("201", "202"):
            names.append("Location")
        if declared.queues:
            names += ["RateLimit", "RateLimit-Policy"]
        if declared.access is Access.UPLOAD:
            names.append("Upload-Limit")
        if names:
            answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _is_list(answer: Json) -> bool:
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith("List")


def _parameters(operation: Json) -> None:
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        if parameter["name"] == "suffix":
            schema["enum"] = list(BY_SUFFIX)
        elif parameter["name"] == "device":
            schema["format"] = "device"


def _forms(document: Json) -> None:
    """What bodies may hold beyond their fields' types: one of two, at least one of several."""
    schemas, paths = document["components"]["schemas"], document["paths"]
    text, stored, told = {"type": "string", "format": "region"}, {"type": "string", "format": "id"}, {"type": "object"}
    schemas["AdviceRequest"]["oneOf"] = [_one("region", text, "widget"), _one("widget", told, "region")]
    schemas["ValidationRequest"]["oneOf"] = [_one("region", text, "region_id"), _one("region_id", stored, "region")]
    for field, bounds in (("candidates", {"minItems": 1, "maxItems": MAX_CANDIDATES}), ("device", {"maxItems": 1})):
        for option in schemas["ValidationRequest"]["properties"][field]["anyOf"]:
            if option.get("type") == "array":
                option |= bounds
    for name in ("AdviceRequest", "ValidationRequest", "LinkRequest"):
        for key, kind in FORMATS.items():
            for option in schemas[name]["properties"].get(key, {}).get("anyOf", []):
                if option.get("type") == "string":
                    option["format"] = kind
    schemas["LinkRequest"]["properties"]["region"]["format"] = "region"
    check = paths["/api/v1/checks"]["post"]["requestBody"]["content"]
    asked = check["application/json"]["schema"]
    asked["properties"]["check"] = check_schema()
    asked["properties"]["assertions"] = assertions_schema()
    asked["properties"]["regions"]["items"]["format"] = "region"
    parts = ("traces", "region_ids", "regions")
    asked["anyOf"] = [{"required": [p], "properties": {p: {"minItems": 1}}} for p in parts]
    runs = paths["/api/v1/history"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    runs["properties"]["entries"]["items"]["properties"]["at"]["format"] = "date-time"
    for path in ("/api/v1/checks", "/api/v1/traces", "/api/v1/traces/{trace_id}/again"):
        form = paths[path]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        form["properties"]["file"]["minItems"] = 1
        if path.endswith("again"):
            form["anyOf"] = [{"required": [part]} for part in ("file", "companion", "execution_trace")]


def _one(field: str, schema: Json, other: str) -> Json:
    return {"required": [field], "properties": {field: schema, other: {"type": "null"}}}


@cache
def _known_examples() -> Json:
    examples: Json = json.loads(EXAMPLES.read_text(encoding="utf-8")) if EXAMPLES.exists() else {}
    return examples


def _examples(name: str, operation: Json) -> None:
    known = _known_examples().get(name, {})
    for kind, body in known.get("request", {}).items():
        operation["requestBody"]["content"][kind]["example"] = body
    for parameter in operation.get("parameters", []):
        if parameter["name"] in known.get("parameters", {}):
            parameter["example"] = known["parameters"][parameter["name"]]
    for status, body in known.get("responses", {}).items():
        for kind in operation["responses"][status].get("content", {}):
            if kind in body:
                operation["responses"][status]["content"][kind]["example"] = body[kind]
