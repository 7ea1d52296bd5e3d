"""The API's calls as /api shows them. tests/app/web/pages/test_pages.py runs every command against the app."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what it does, a curl command, and the keys of its answer."""

    method: str
    path: str
    title: str
    curl: str
    answers: str


_REGION = r"x: bf16[1024, 4096]\ny = gelu(x) * 2\nreturn y"


def calls(base: str) -> tuple[Call, ...]:
    """The calls with commands for the server at base, such as http://127.0.0.1:8000."""
    api = f"{base}/api/v1"
    return (
        Call(
            "POST",
            "/api/v1/traces",
            "Upload a trace and wait for its regions",
            f"curl --data-binary @trace.json.gz '{api}/traces?name=step&wait=30'",
            "id, status, kernels, steps, step_time_us, linked_share, notes[], regions[], "
            "gain{all, top{step_time_us, speedup}, unknown[]}; then, asked for again, "
            "oracle{asked, answered, failed, of_time, done}, regions[{prediction}]",
        ),
        Call(
            "POST",
            "/api/v1/traces",
            "The ranks of one job at once, or a trace with what was recorded with it",
            f"curl -F file=@rank0.json.gz -F file=@rank1.json.gz '{api}/traces?wait=30'",
            "the first, as above, with group; parts of the form: file, companion, execution_trace, group",
        ),
        Call(
            "POST",
            "/api/v1/traces/{id}/again",
            "Read a trace again with a companion; nothing is sent twice",
            f"curl -F companion=@eager.json.gz '{api}/traces/TRACE_ID/again?wait=30'",
            "a new trace, as above, with companions{}; notes[] of level error say what could not be used",
        ),
        Call(
            "GET",
            "/api/v1/traces/{id}/ranks",
            "The ranks of a trace's group side by side",
            f"curl '{api}/traces/TRACE_ID/ranks'",
            "ranks[{rank, wall_us, own_us, communication_us, wait_us}], slowest, spread, waiting_share",
        ),
        Call("GET", "/api/v1/traces", "List traces", f"curl '{api}/traces?limit=10'", "items[], next"),
        Call("GET", "/api/v1/traces/{id}", "One trace", f"curl '{api}/traces/TRACE_ID'", "as above"),
        Call(
            "PATCH",
            "/api/v1/traces/{id}",
            "Rename a trace; a region likewise",
            f"curl -X PATCH -H 'Content-Type: application/json' -d '{{\"name\": \"after\"}}' '{api}/traces/TRACE_ID'",
            "the trace; /api/v1/regions/{id} the region",
        ),
        Call(
            "GET",
            "/api/v1/regions/{id}",
            "One region with its cost and advice",
            f"curl '{api}/regions/REGION_ID'",
            "id, name, text, source, share_of_step, cost, advice",
        ),
        Call(
            "GET",
            "/api/v1/regions/{id}/devices",
            "A region on every device of the table, predicted",
            f"curl '{api}/regions/REGION_ID/devices'",
            "items[{device, here, tool, mode, now_us, time_us, region_speedup, step_speedup, fitted, because}]; "
            "/api/v1/regions/{id}?device=A100 is the region with the advice for one",
        ),
        Call(
            "POST",
            "/api/v1/regions/{id}/oracle",
            "Ask what torch.compile would make of a region",
            f"curl -X POST '{api}/regions/REGION_ID/oracle'",
            "the region; oracle[{mode, kernels[{name, kind, calls, bytes_moved, lines, source}], externs[], launches}]",
        ),
        Call(
            "GET",
            "/api/v1/regions/{id}/kernels/{kernel}",
            "What the compiler decides about one of those kernels",
            f"curl '{api}/regions/REGION_ID/kernels/KERNEL?mode=default'",
            "kernel, arch, machine{registers, spill_bytes, shared_bytes, occupancy, texts{ptx, sass, ...}}, findings[]",
        ),
        Call(
            "POST",
            "/api/v1/advice",
            "Advice on a region, written down",
            "curl -H 'Content-Type: application/json' -d "
            f'\'{{"region": "{_REGION}", "share_of_step": 0.2}}\' \'{api}/advice\'',
            "tool, mode, headline, action, call, criteria[], alternatives[], region_speedup, step_speedup, floor_us, "
            "would_change[]",
        ),
        Call(
            "POST",
            "/api/v1/advice",
            "Advice from three answers, as the widget asks them",
            "curl -H 'Content-Type: application/json' -d "
            '\'{"widget": {"share_of_step": 0.2, "uniqueness": 0.8, "irregularity": 0.6, "bound": "memory"}}\''
            f" '{api}/advice'",
            "as above",
        ),
        Call(
            "POST",
            "/api/v1/links",
            "A short address for a region",
            "curl -H 'Content-Type: application/json' -d "
            f'\'{{"region": "{_REGION}", "share_of_step": 0.2}}\' \'{api}/links\'',
            "id, path (/r/ID, its page), region, share_of_step, calls_per_step, device; the same text has the same one",
        ),
        Call(
            "GET",
            "/api/v1/links/{id}",
            "What a short address stands for",
            f"curl '{api}/links/LINK_ID'",
            "as above",
        ),
        Call(
            "POST",
            "/api/v1/validations",
            "Measure the candidates of a region",
            f"curl -H 'Content-Type: application/json' -d '{{\"region\": \"{_REGION}\"}}' '{api}/validations'",
            "a job: id, state, progress",
        ),
        Call(
            "GET", "/api/v1/jobs/{id}", "How a job is doing", f"curl '{api}/jobs/JOB_ID'", "id, state, progress, result"
        ),
        Call(
            "GET",
            "/api/v1/jobs/{id}/events",
            "The same as a stream (SSE): progress, then done",
            f"curl -N '{api}/jobs/JOB_ID/events'",
            "events progress and done",
        ),
        Call(
            "GET",
            "/api/v1/validations/{id}",
            "What was measured",
            f"curl '{api}/validations/JOB_ID'",
            "outcome, reason, device, software, conditions, candidates[], best, advice_before, advice_after",
        ),
        Call(
            "GET",
            "/api/v1/validations/{id}/kit.zip",
            "A kernel to download, with its test and its benchmark",
            f"curl -o kit.zip '{api}/validations/JOB_ID/kit.zip'",
            "a zip: the kernel's file, replay.py, README.md, validation.json; ?candidate=triton:softmax picks one",
        ),
        Call(
            "POST",
            "/api/v1/validations/{id}/landscape",
            "Time a Triton candidate over tile size, warps and stages",
            f"curl -H 'Content-Type: application/json' -d '{{\"candidate\": \"triton:softmax\"}}'"
            f" '{api}/validations/JOB_ID/landscape'",
            "a job; then GET /api/v1/validations/{id}/landscape: points[], chosen, best, worst_to_best, order",
        ),
        Call(
            "POST",
            "/api/v1/checks",
            "Assertions for CI on traces and regions, by files or by ids",
            f"curl -F file=@trace.json.gz '{api}/checks?wait=30'",
            "a job; parts of the form: file, baseline, config (tritonworthy.toml), or JSON with ids and assertions",
        ),
        Call(
            "GET",
            "/api/v1/checks/{id}",
            "Its verdict; .md, .sarif, .xml, .csv, .html and .json are its reports",
            f"curl '{api}/checks/CHECK_ID?wait=30'",
            "outcome, exit_code (0, 1, 2), errors[], warnings[], unmeasured[], assertions[]",
        ),
        Call("POST", "/api/v1/jobs/{id}/cancel", "Stop a job", f"curl -X POST '{api}/jobs/JOB_ID/cancel'", "the job"),
        Call(
            "DELETE",
            "/api/v1/traces/{id}",
            "Forget a trace",
            f"curl -X DELETE '{api}/traces/TRACE_ID'",
            "nothing (204)",
        ),
        Call("GET", "/api/v1/device", "The host's GPU and versions", f"curl '{api}/device'", "gpu, versions"),
        Call("GET", "/healthz", "Alive", f"curl '{base}/healthz'", "200"),
        Call("GET", "/readyz", "Ready for work", f"curl '{base}/readyz'", "200, or 503 with the reason"),
    )
