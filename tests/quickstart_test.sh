#!/usr/bin/env bash
# scripts/quickstart, ended at random moments by Ctrl-C, SIGTERM and kill -9: the same command goes on, and the warm start has
# the bits of one that nobody ended. On the tiny model, with a binary that is built. With TANDEM_LONG_TESTS ten times, to the
# end of the training; else twice, as far as the warm start.
#   tests/quickstart_test.sh SOURCE TANDEM TINY_MODEL
set -euo pipefail
source_dir=$1 TANDEM=$2 tiny=$3
export TANDEM
times=2 command=(scripts/quickstart --smoke --no-train)
[[ -z "${TANDEM_LONG_TESTS:-}" ]] || times=10 command=(scripts/quickstart --smoke)
command -v pgrep >/dev/null || { echo "pgrep is missing; install procps" >&2; exit 1; }
scratch=$(mktemp -d)
quickstart=
finish() {
  [[ -z "$quickstart" ]] || kill -KILL -- "-$quickstart" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT
RANDOM=${RANDOM_SEED:-$((SRANDOM % 32768))}
seed=$RANDOM
RANDOM=$seed
echo "random moments by RANDOM_SEED=$seed"

# tree NAME: a checkout with what the quickstart reads, where the tiny model stands in for the one that is downloaded.
tree() {
  mkdir -p "$scratch/$1/models"
  cp -r "$source_dir/scripts" "$source_dir/configs" "$source_dir/profiles" "$scratch/$1"
  cp -r "$tiny" "$scratch/$1/models/SmolLM2-135M-Instruct"
}

tree whole
tree parts
cd "$scratch/whole"
began=${EPOCHREALTIME/./}
timeout 300 "${command[@]}" >"$scratch/whole.log" 2>&1 || { cat "$scratch/whole.log"; exit 1; }
took=$(((${EPOCHREALTIME/./} - began) / 1000))

cd "$scratch/parts"
check_start() { cmp "$scratch/whole/models/warm-start-smoke/model.safetensors" models/warm-start-smoke/model.safetensors; }
for ((i = 1; i <= times; ++i)); do
  signals=(INT TERM KILL)
  signal=${signals[RANDOM % 3]}
  # A moment of what an undisturbed one takes, the warm start at its begin more often than the run.
  moment=$((RANDOM % (i % 2 ? took / 3 + 1 : took + 1)))
  # A session of its own, so that its group can be ended whole; SIGINT is ignored by what a script starts beside it, else.
  setsid env --default-signal=INT timeout --foreground 300 "${command[@]}" >"$scratch/part-$i.log" 2>&1 &
  launched=$!
  quickstart=$launched
  sleep "$((moment / 1000)).$(printf '%03d' $((moment % 1000)))"
  # As a terminal does it, Ctrl-C is for the whole group; the others are for the script alone.
  script=$(pgrep -P "$launched" -f scripts/quickstart | head -n 1 || true)
  if [[ -n "$script" ]]; then
    if [[ $signal == INT ]]; then kill -INT -- "-$launched" 2>/dev/null || true; else kill "-$signal" "$script" 2>/dev/null || true; fi
  fi
  status=0
  wait "$launched" || status=$?
  quickstart=
  echo "$i: $signal after $moment ms: exit $status"
  case "$status" in
    0) # It was over before; the next one begins anew.
      check_start
      rm -rf models/warm-start-smoke* runs
      ;;
    129 | 130 | 137 | 143 | 124) ;;
    *) cat "$scratch/part-$i.log"; exit 1 ;;
  esac
done
timeout 400 "${command[@]}" >"$scratch/last.log" 2>&1 || { cat "$scratch/last.log"; exit 1; }
check_start
echo "the same warm start"
[[ -n "${TANDEM_LONG_TESTS:-}" ]] || exit 0

grep -q 'tasks new' "$scratch/last.log"
[[ -s runs/smoke/curve.svg && -s runs/smoke/summary.json ]]
python3 - "$scratch" <<'PY'
import json, sys
for name in ("whole", "parts"):
    summary = json.load(open(f"{sys.argv[1]}/{name}/runs/smoke/summary.json"))
    episodes = summary["episodes"]
    assert summary["steps"] == 2, summary["steps"]
    assert episodes["admitted"] == episodes["trained"] + sum(episodes["dropped"].values()) + episodes["in_flight"], episodes
    assert summary["heldout"]["before"]["n_tasks"] == summary["heldout"]["after"]["n_tasks"], summary["heldout"]
PY
echo "a run whose books agree"
