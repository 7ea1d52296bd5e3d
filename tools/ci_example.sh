#!/usr/bin/env bash
# Starts a server, checks two traces against assertions, and gets 0, 1 and 2. Reports go to the folder in $1, and each
# is held to its format's own validator (SARIF's and JUnit's schemas, the API's for JSON, parsers for the others).
# docs/ci.md has the same for GitHub Actions and GitLab; tests/docs/test_ci.py runs this.
set -euo pipefail
cd "$(dirname "$0")/.."
reports=${1:?usage: tools/ci_example.sh FOLDER}
tritonworthy=${TRITONWORTHY:-.venv/bin/tritonworthy}
before=app/examples/llama_prefill.json.gz
after=app/examples/handrolled_blocks.json.gz
mkdir -p "$reports"
work=$(mktemp -d)

"$tritonworthy" serve --port 0 --data-dir "$work/data" > "$work/log" 2>&1 &
server=$!
trap 'kill "$server" 2> /dev/null; wait "$server" 2> /dev/null || true; rm -rf "$work"' EXIT
url=
for _ in $(seq 240); do
  url=$(grep -om1 'http://127\.0\.0\.1:[0-9]*' "$work/log" || true)
  if [ -n "$url" ] && curl -sf "$url/readyz" > /dev/null; then break; fi
  kill -0 "$server" 2> /dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.5
done

# name, wanted exit code, assertions: the check's own exit code must be the wanted one.
check() {
  curl -sSf -F "file=@$after" -F "baseline=@$before" --form-string "config=$3" "$url/api/v1/checks" > "$work/job.json"
  local id got=null
  id=$(jq -r .id "$work/job.json")
  until [ "$got" != null ]; do
    got=$(curl -sSf "$url/api/v1/checks/$id?wait=60" | jq .exit_code)
  done
  for report in json md sarif xml csv html; do
    curl -sSf "$url/api/v1/checks/$id.$report" > "$reports/$1.$report"
  done
  echo "$1: exit code $got, $(jq -r .because "$reports/$1.json")"
  [ "$got" -eq "$2" ]
}

check passed 0 '[check]
name = "passed"
[assertions]
library = "warn"
triton = { level = "error", min_share = 0.9 }'

check failed 1 '[check]
name = "failed"
[assertions]
compile-fuses = { level = "error", min_share = 0.05, new_only = true }'

# One step each: how much steps differ by themselves is not known, so nothing is called slower.
check unmeasured 2 '[check]
name = "unmeasured"
[assertions]
regression = "error"'

"$(dirname "$tritonworthy")/python" -m tests.app.check.validators "$reports"/{passed,failed,unmeasured}.*
