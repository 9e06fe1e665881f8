#!/bin/sh
# Writes the lock files anew from pyproject.toml (`make lock`). Needs uv; FIND_LINKS may name
# a folder of wheels that holds the CPU build of torch, where no index is reachable that does.
set -eu
cd "$(dirname "$0")/.."
common="--universal --python-version 3.11 --generate-hashes --no-header --quiet --no-emit-package torch
  --no-emit-package torchvision --no-emit-package torchaudio --no-emit-package torchcodec"
[ -z "${FIND_LINKS:-}" ] || common="$common --find-links $FIND_LINKS"
for target in cpu gpu; do
  case $target in cpu) verifier=verifier-cpu ;; gpu) verifier=verifier ;; esac
  # shellcheck disable=SC2086
  uv pip compile pyproject.toml --extra cloud --extra desktop --extra "$verifier" --group dev \
    $common -o "locks/$target.txt" >/dev/null
done
