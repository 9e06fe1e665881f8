#!/bin/sh
# Writes the lock files anew from pyproject.toml (`make lock`); versions already locked stay unless
# UPGRADE=1. The CPU build of torch is not on PyPI, so its place is named: FIND_LINKS may point at a
# folder of wheels instead. Only the GPU lock holds torch; tools/setup.py installs the CPU build.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
[ -x "$uv" ] || uv=uv
common="--universal --python-version 3.11 --generate-hashes --no-header --quiet
  --extra cloud --extra desktop --group dev
  --no-emit-package torchvision --no-emit-package torchaudio --no-emit-package torchcodec"
[ -z "${UPGRADE:-}" ] || common="$common --upgrade"
# shellcheck disable=SC2086
$uv pip compile pyproject.toml $common --extra verifier-cpu --no-emit-package torch \
  --find-links "${FIND_LINKS:-https://download.pytorch.org/whl/cpu/torch/}" -o locks/cpu.txt >/dev/null
# shellcheck disable=SC2086
$uv pip compile pyproject.toml $common --extra verifier -o locks/gpu.txt >/dev/null
