#!/usr/bin/env bash
# The store's tests run on PostgreSQL too, on a server of their own (tests/postgres.py). Installs it where there is none.
set -euo pipefail
if command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then exit 0; fi
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
if ! command -v apt-get >/dev/null; then
  echo "The store's tests need PostgreSQL 13 or newer: install it with this system's package manager." >&2
  exit 1
fi
# Debian's package would make a cluster of its own and start it with the machine: nobody asked for that.
"${as_root[@]}" mkdir -p /etc/postgresql-common/createcluster.d
echo 'create_main_cluster = false' | "${as_root[@]}" tee /etc/postgresql-common/createcluster.d/tritonworthy.conf >/dev/null
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -y -q --no-install-recommends postgresql
