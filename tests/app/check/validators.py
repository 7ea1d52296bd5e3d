"""Each report format's own validator. They raise, or answer with what they read."""

from __future__ import annotations

import csv
import functools
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import html5lib
import jsonschema
import junitparser
import xmlschema
from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.check.formats import FORMATS
from app.objects.check import Report
from tests.app.objects.exact import differences

Json = dict[str, Any]

SCHEMAS = Path(__file__).with_name("schemas")
VOID = {"meta", "br"}


@functools.cache
def _sarif_schema() -> Any:
    schema = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())


def sarif(text: str) -> Json:
    """The log, valid against the SARIF 2.1.0 schema, with what the specification asks in addition."""
    log: Json = json.loads(text, parse_constant=_no_constant)
    _sarif_schema().validate(log)
    for run in log["runs"]:
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert len(set(rules)) == len(rules)
        for result in run["results"]:
            assert rules[result["ruleIndex"]] == result["ruleId"]
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert uri and not uri.startswith("/") and ".." not in uri.split("/") and ":" not in uri, uri
        prints = [json.dumps(r["partialFingerprints"], sort_keys=True) for r in run["results"]]
        assert len(set(prints)) == len(prints)
    return log


@functools.cache
def _junit_schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd"))


def junit(text: str) -> junitparser.JUnitXml:
    """The suites, valid against Jenkins' schema; their totals are those of their cases."""
    _junit_schema().validate(io.StringIO(text))
    found = junitparser.JUnitXml.fromstring(text.encode("utf-8"))
    for suite in found:
        cases = list(suite)
        assert suite.tests == len(cases)
        for kind, total in (("Failure", suite.failures), ("Skipped", suite.skipped), ("Error", suite.errors)):
            assert total == sum(any(type(r).__name__ == kind for r in case.result) for case in cases)
    return found


def table(text: str) -> list[dict[str, str]]:
    """The rows, all as wide as the header; no cell is a formula for a spreadsheet."""
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert all(len(row) == len(rows[0]) for row in rows)
    assert text.count("\r\n") == len(rows)
    for cell in (cell for row in rows for cell in row):
        assert not cell.startswith(("=", "@", "\t", "\r", "＝", "＋", "－", "＠", "|", "%")), cell
        assert not cell.startswith(("+", "-")) or _is_number(cell), cell
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


OWN_HTML = ("<!-- tritonworthy-check:", "<details><summary>", "</details>")


def markdown(text: str) -> list[Token]:
    """CommonMark's tokens with tables: no link, no image, and no HTML but our own."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    for token in tokens:
        for part in (token, *(token.children or ())):
            assert part.type not in ("link_open", "image", "html_inline"), part
            if part.type == "html_block":
                assert part.content.startswith(OWN_HTML) and part.content.count("<") <= 3, part.content
    return tokens


def html(text: str) -> Any:
    """The document, without one error of HTML5's parser; nothing to run and nothing to load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    allowed = {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "strong", "table", "thead", "tbody",
        "tr", "th", "td", "code", "pre", "br", "div", "details", "summary", "footer",
    }  # fmt: skip
    for element in tree.iter():
        assert element.tag in allowed, element.tag
        assert set(element.attrib) <= {"lang", "charset", "name", "content", "http-equiv", "class", "scope"}
    return tree


def data(text: str) -> Json:
    """JSON as RFC 8259 has it, without NaN, and a report exactly as its type says."""
    answer: Json = json.loads(text, parse_constant=_no_constant)
    assert differences(Report, answer) == []
    return answer


def _no_constant(name: str) -> float:
    raise AssertionError(name)


VALIDATORS = {"json": data, "markdown": markdown, "sarif": sarif, "junit": junit, "csv": table, "html": html}


def main(paths: list[str]) -> None:
    """Hold files to the validator of their suffix: `python -m tests.app.check.validators reports/*`."""
    by_suffix = {known.suffix: VALIDATORS[name] for name, known in FORMATS.items()}
    for path in map(Path, paths):
        by_suffix[path.suffix[1:]](path.read_bytes().decode("utf-8"))
    print(f"{len(paths)} reports are valid")


if __name__ == "__main__":
    main(sys.argv[1:])
