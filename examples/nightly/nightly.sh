#!/bin/sh
# The evaluation of tonight, beside those of other nights in one folder, compared with the newest one that has ended.
#
#   examples/nightly/nightly.sh SUITE.yaml NIGHTS [a.b=v ...]
#
# TANDEM is the program (tandem of PATH). The exit code is that of `tandem eval`; the same command goes on after 75 and 5.
set -eu
suite=$1 nights=$2
shift 2
mkdir -p "$nights"
tonight=$nights/$(date -u +%Y-%m-%d)
last=
for night in "$nights"/*/; do
  [ -e "$night/results.json" ] && [ "${night%/}" != "$tonight" ] || continue
  grep -q '^  "exit": 5,' "$night/results.json" || last=${night%/}  # one that came to nothing is not compared with
done
exec "${TANDEM:-tandem}" eval "$suite" "$@" --out "$tonight" ${last:+--against "$last"}
