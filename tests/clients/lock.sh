#!/bin/sh
# Writes the clients' lock files anew, with the newest versions: sh tests/clients/lock.sh [NAME…]
# What is not asked for at run time is left out by overrides.txt.
set -eu
cd "$(dirname "$0")/locks"
uv=../../../.venv/bin/uv
for file in *.in; do
  name=${file%.in}
  case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
  "$uv" pip compile "$file" --universal --python-version 3.11 --generate-hashes --no-header --quiet --upgrade \
    --override overrides.txt -o "$name.txt" >/dev/null
done
for folder in */; do
  name=${folder%/}
  case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
  (cd "$name" && npm update --save --package-lock-only --ignore-scripts --no-audit --no-fund)
done
