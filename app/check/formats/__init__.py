"""A check's report in the formats that CI reads. Each is a pure function of the report: JSON in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.check.formats.html import to_html
from app.check.formats.junit import to_junit
from app.check.formats.markdown import to_markdown
from app.check.formats.plain import to_json
from app.check.formats.sarif import to_sarif
from app.check.formats.table import to_csv
from app.objects.check import Report


@dataclass(frozen=True, slots=True)
class Format:
    """suffix: of the file and of the API's address; media_type: of the answer."""

    suffix: str
    media_type: str
    render: Callable[[Report], str]


FORMATS: Mapping[str, Format] = {
    "json": Format("json", "application/json", to_json),
    "markdown": Format("md", "text/markdown; charset=utf-8", to_markdown),
    "sarif": Format("sarif", "application/sarif+json", to_sarif),
    "junit": Format("xml", "application/xml", to_junit),
    "csv": Format("csv", "text/csv; charset=utf-8", to_csv),
    "html": Format("html", "text/html; charset=utf-8", to_html),
}

BY_SUFFIX: Mapping[str, Format] = {f.suffix: f for f in FORMATS.values()}

__all__ = ["BY_SUFFIX", "FORMATS", "Format"]
