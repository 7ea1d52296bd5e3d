#!/usr/bin/env bash
# The browser tests drive the system's Chromium. Installs it where there is none.
set -euo pipefail
if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then exit 0; fi
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
if ! command -v apt-get >/dev/null; then
  echo "The browser tests need Chromium: install it with this system's package manager." >&2
  exit 1
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core
