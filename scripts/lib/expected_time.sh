# shellcheck shell=bash
# How long the steps of the quickstart will take on this machine, before they begin: what was measured on two cores with
# AVX512_BF16 and without AMX (docs/quickstart.md), by the number of cores and the instruction set. Sourced by quickstart.

cores=$(nproc)

instruction_set() {
  local flags
  flags=" $(grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null || true) "
  case "$flags" in
    *" amx_bf16 "*) printf 'AMX' ;;
    *" avx512_bf16 "*) printf 'AVX512_BF16' ;;
    *" avx512bw "*) printf 'AVX-512' ;;
    *) printf 'AVX2' ;;
  esac
}

# Time of a step of training in per cent of that with AVX512_BF16, by the peaks of products (docs/performance.md); AMX, of
# which no step has been timed on two cores, is taken for no faster.
percent_of() {
  case "$1" in
    AMX | AVX512_BF16) printf 100 ;;
    AVX-512) printf 170 ;;
    *) printf 340 ;;
  esac
}

# expected_seconds build|warm-start|train
expected_seconds() {
  case "$1" in
    build) printf '%d' $((660 * 2 / cores)) ;;
    warm-start) printf '%d' $((520 * 2 * $(percent_of "$(instruction_set)") / 100 / cores)) ;;
    train) printf '%d' $((1050 * 2 * $(percent_of "$(instruction_set)") / 100 / cores)) ;;
  esac
}

about() { (($1 < 60)) || printf ', about %d min' $((($1 + 30) / 60)); }

# tell_machine SECONDS: what this machine is and how long all will take there; a slow one is told so.
tell_machine() {
  local minutes=$((($1 + 30) / 60))
  note "machine: $cores cores with $(instruction_set); about $minutes min in all, where nothing else runs here"
  ((minutes <= 45)) || note "this machine is slow for it: scripts/quickstart --smoke is the same path in some minutes"
}
