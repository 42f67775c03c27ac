# shellcheck shell=bash
# Long commands of the scripts: run in the background, followed by their log, ended with the script. Sourced by steps.sh.
#
# Progress is read from lines such as "[120/700] ...", "step 12/120" and "12/93 MB". The time left follows from the speed
# that was measured since the command began. On a terminal it is a line that changes; elsewhere a line every few seconds.

child=''
quiet_seconds=10  # between lines where there is no terminal

# Seconds that what comes after the step under way will take; nothing where that is not known. Scripts may define it.
seconds_later() { :; }

as_minutes() { if (($1 < 90)); then printf '%ds' "$1"; else printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); fi; }

# Ends what runs, so that it can save what it has, and then the script. The same command goes on.
stop_child() {
  local code="$1"
  trap '' INT TERM HUP
  if [[ -n "$child" ]] && kill -0 "$child" 2>/dev/null; then
    printf '\nending what runs; it saves how far it is\n' >&2
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  printf '\ninterrupted; run the same command again to go on\n' >&2
  exit "$code"
}
trap 'stop_child 130' INT
trap 'stop_child 143' TERM
trap 'stop_child 129' HUP

# A child gets SIGTERM where this script is killed: else it would go on alone, and the same command would meet it.
start_child() {
  if command -v setpriv >/dev/null && [[ "$(type -t "$1")" != function ]]; then setpriv --pdeathsig TERM "$@" & else "$@" & fi
  child=$!
}

wait_for_child() {
  local status=0
  wait "$child" || status=$?
  child=''
  return "$status"
}

# "12/120" of the end of a log; nothing where it says nothing of the kind.
progress_in() {
  tail -c 4096 "$1" 2>/dev/null | tr '\r' '\n' | grep -aoE '^ *\[[0-9]+/[0-9]+\]|step +[0-9]+/[0-9]+|[0-9]+/[0-9]+ MB' |
    tail -n 1 | grep -oE '[0-9]+/[0-9]+' || true
}

# follow NAME LOG: shows how far the child is until it ends.
follow() {
  local name="$1" log="$2" at now first='' first_at=0 done_ all left later shown=-1000 text sleeper=''
  local began=$SECONDS
  while kill -0 "$child" 2>/dev/null; do
    sleep 1 &
    sleeper=$!
    wait -n "$child" "$sleeper" 2>/dev/null || true
    at=$(progress_in "$log")
    now=$SECONDS text="$name: $(as_minutes $((now - began)))"
    if [[ -n "$at" ]]; then
      done_=${at%/*} all=${at#*/}
      [[ -n "$first" ]] || first=$done_ first_at=$now
      text="$name: $done_ of $all"
      if ((done_ > first && now > first_at)); then
        left=$(((all - done_) * (now - first_at) / (done_ - first)))
        text+=", $(as_minutes "$left") left"
        later=$(seconds_later)
        [[ -z "$later" ]] || text+=", $(as_minutes $((left + later))) in all"
      fi
    fi
    if [[ -t 1 ]]; then
      printf '\r\033[K  %s' "${text:0:100}"
    elif ((now - shown >= quiet_seconds && now - began >= 3)); then
      printf '[%6s]   %s\n' "$(elapsed)" "$text"
      shown=$now
    fi
  done
  [[ ! -t 1 ]] || printf '\r\033[K'
  # Else its end is that of a child of which whoever sourced this knows nothing.
  [[ -z "$sleeper" ]] || { kill "$sleeper"; wait "$sleeper"; } 2>/dev/null || true
}

# quietly NAME COMMAND...: the output goes to a log; how far it is is shown while it runs, the log's end where it fails.
quietly() {
  local name="$1" log="${log_dir:?}/$1.log" status=0
  shift
  mkdir -p "$log_dir"
  : >"$log"
  start_child "$@" >"$log" 2>&1
  follow "$name" "$log"
  wait_for_child || status=$?
  ((status == 0)) && return 0
  printf '\n' >&2
  if grep -q 'No space left on device' "$log"; then fail "the disk is full (while: $name)" 3 "free some space, then run this again"; fi
  if grep -qE 'error:|FAILED' "$log"; then grep -E -m 12 'error:|FAILED' "$log" >&2; else tail -n 15 "$log" >&2; fi
  return "$status"
}
