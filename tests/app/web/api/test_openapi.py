"""The server against /openapi.json: all is described, and answered so. `make check-api` asks for thousands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.main import create_app
from app.settings import Settings
from app.web.api.openapi import complete_description, operation_id, operations
from tests.app.web.routes import ACCESS, CONTRACT
from tools.checks.check_api import RECORD, run, summary

Json = dict[str, Any]
CASES = 100


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Json:
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data"), oracle="off"))
    answer: Json = app.openapi()
    return answer


def test_every_operation_answers_as_it_is_described(tmp_path: Path) -> None:
    report = run(CASES, tmp_path, phases="examples,fuzzing")
    answer = summary(report)
    assert answer["operations"] == answer["operations_described"] > 20
    assert answer["cases"] > CASES
    assert not answer["failures"] and not answer["errors"], report["said"]


def test_every_route_of_the_api_is_described_with_its_problems_and_sign_in(document: Json) -> None:
    described = {(method.upper(), path) for path, method, _ in operations(document)}
    routed = {(method, path) for method, path in ACCESS if path.startswith("/api/")}
    assert routed <= described
    for path, method, operation in operations(document):
        assert operation["operationId"] == operation_id(method, path)
        assert operation["description"]
        wanted = {"400", "429", "500", "503"} | ({"401"} if path.startswith("/api/") else set())
        wanted |= {"404"} if "{" in path else set()
        wanted |= {"304"} if method == "get" and path.startswith("/api/") and not path.endswith("/events") else set()
        assert wanted <= set(operation["responses"]), path
        for status, answer in operation["responses"].items():
            if status[0] in "45":
                schema = answer["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}
                assert "Codes: `" in answer["description"], (path, status)
    assert "ValidationError" not in json.dumps(document)
    assert {route for route, declared in CONTRACT.declarations.items() if declared.codes} <= described


def test_examples_are_of_every_operation_and_fit_their_schemas(document: Json) -> None:
    for path, method, operation in operations(document):
        for kind, body in operation.get("requestBody", {}).get("content", {}).items():
            if kind == "application/json":
                _fits(document, body["example"], body["schema"])
        shown = 0
        for status, answer in operation["responses"].items():
            for kind, body in answer.get("content", {}).items():
                if status[0] == "2" and "example" in body:
                    shown += 1
                    if kind == "application/json" and body.get("schema"):
                        _fits(document, body["example"], body["schema"])
        assert shown or method == "delete" or "zip" in path, f"{method} {path} has no example of its answer"


def test_a_description_is_completed_from_what_fastapi_gives_and_changes_nothing_of_it(document: Json) -> None:
    before = json.dumps(document)
    again = complete_description(document, CONTRACT)
    assert json.dumps(document) == before
    assert again["paths"].keys() == document["paths"].keys()


def test_record_is_of_thousands_of_cases_without_a_failure() -> None:
    answer = json.loads(RECORD.read_text())
    assert answer["cases"] >= 5000
    assert answer["operations"] == answer["operations_described"] > 20
    assert answer["failures"] == answer["errors"] == {}
    assert answer["errored"] == answer["without_checks"] == 0


def _fits(document: Json, value: Any, schema: Json) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)
