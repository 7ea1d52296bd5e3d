#!/usr/bin/env bash
# The Dockerfile's steps on a throw-away overlay of this machine's root, in a mount namespace of its own. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then echo "docker-steps needs root (it mounts an overlay)" >&2; exit 1; fi
python=$(command -v python3)
source=$PWD
export source python
exec unshare --mount --propagation private bash -euo pipefail -c '
  layers=$(mktemp -d)
  mount -t tmpfs -o size=12g tmpfs "$layers"
  mkdir "$layers/upper" "$layers/work" "$layers/root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$layers/root"
  for folder in proc dev sys; do mount --rbind "/$folder" "$layers/root/$folder"; done
  mount -t tmpfs -o mode=1777 tmpfs "$layers/root/tmp"
  "$python" tools/docker_steps.py "$source" "$layers/root"
'
