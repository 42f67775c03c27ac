# What the scripts share: named steps with elapsed time, Debian packages, checks of the machine, the build. Sourced, not run,
# with the repository root as working directory; sets nothing outside it but installed packages.
#
# Exit codes: 1 a step failed, 3 this machine lacks something, 129, 130 and 143 interrupted.

started_at=$SECONDS
log_dir="build/logs"

packages=(
  build-essential cmake ninja-build ccache pkg-config git
  libzmq3-dev cppzmq-dev capnproto libcapnp-dev libyaml-cpp-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev
  libboost-dev libcurl4-openssl-dev libssl-dev libxxhash-dev libzstd-dev libpcre2-dev libicu-dev libsodium-dev libexpected-dev libseccomp-dev libgtest-dev libgmock-dev
  ripgrep bubblewrap python3 python3-venv python3-pip procps
)

# A script that knows how many steps it has sets `steps_in_all`; they are numbered then.
steps_in_all=0 step_number=0
elapsed() { printf '%dm%02ds' $(((SECONDS - started_at) / 60)) $(((SECONDS - started_at) % 60)); }
step() {
  local number=
  if ((steps_in_all > 0)); then
    ((++step_number))
    number="$step_number/$steps_in_all "
  fi
  note "$number$1"
}
note() { printf '[%6s] %s\n' "$(elapsed)" "$1"; }
# fail SENTENCE [EXIT CODE [HINT]]
fail() {
  printf '\nerror: %s\n' "$1" >&2
  [[ -z "${3:-}" ]] || printf '  %s\n' "$3" >&2
  exit "${2:-1}"
}
source scripts/lib/progress.sh

require_debian() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "this script installs Debian packages, and apt-get is not here" 3 "needed are, under the names of Debian 12: ${packages[*]}"
}

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    [[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || printf '%s\n' "$package"
  done
}

# Asks apt only where something is missing.
install_packages() {
  require_debian
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    step "packages: all there"
    return
  fi
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      fail "packages are missing, and this is neither root nor has sudo" 3 \
        "an administrator must run: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  step "packages: installing ${#missing[@]}"
  # What an installation that was ended left half configured stops apt until it is mended.
  [[ -z "$(dpkg --audit 2>/dev/null)" ]] || quietly dpkg-configure "${as_root[@]}" dpkg --configure -a || true
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=2 -o DPkg::Lock::Timeout=120)
  quietly apt-update "${apt[@]}" update || true  # lists of a mirror that is away may still serve; install tells
  quietly apt-install "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install: ${missing[*]}" 3 "is there a network? the whole output is in $log_dir/apt-install.log"
}

# require_space GIGABYTES WHAT_FOR
require_space() {
  local free
  free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
  ((free >= $1)) || fail "$free GB are free here, $1 GB are needed ($2)" 3 "free some space, or move the checkout"
}

require_compiler() {
  local compiler="${CXX:-g++}" version
  version=$("$compiler" -dumpversion 2>/dev/null | cut -d. -f1) || true
  [[ "$version" =~ ^[0-9]+$ ]] || fail "there is no compiler \"$compiler\"" 3 "install build-essential, or set CXX"
  if [[ "$("$compiler" --version | head -n 1)" != *clang* ]] && ((version < 12)); then
    fail "$compiler is version $version; 12 or newer is needed" 3 "set CXX to a newer one: CXX=g++-12 $0"
  fi
}

# build PRESET [TARGET...]: configures where that has not been done, and builds. A cache of another place or a broken one is
# made anew.
build() {
  local preset="$1" folder="build/$1" targets=()
  shift
  (($# == 0)) || targets=("$@")
  if [[ -f "$folder/CMakeCache.txt" ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$folder/CMakeCache.txt"; then
    rm -rf "$folder"
  fi
  if [[ ! -f "$folder/build.ninja" || ! -f "$folder/CMakeCache.txt" ]]; then
    note "configure: $preset"
    quietly "configure-$preset" cmake --preset "$preset" ||
      fail "cmake could not configure the preset $preset" 1 "the whole output is in $log_dir/configure-$preset.log"
  fi
  step "build: $preset"
  # Not through cmake, which would leave ninja alone where it is ended.
  quietly "build-$preset" ninja -C "$folder" "${targets[@]}" ||
    fail "the build of $preset failed" 1 "the whole output is in $log_dir/build-$preset.log"
}

# run_tests PRESET [CTEST ARGUMENT...]: where tests failed, the end of what they said stands before ctest's summary once more,
# for it is lost among a thousand lines otherwise.
run_tests() {
  local preset="$1" log="$log_dir/ctest-$1.log" status=0 test
  shift
  mkdir -p "$log_dir"
  rm -f "build/$preset/Testing/Temporary/LastTestsFailed.log"
  # Most tests wait for processes: one more at once than there are cores.
  ctest --preset "$preset" --no-tests=error -j "$(($(nproc) + 1))" "$@" | tee "$log" || status=$?
  ((status == 0)) && return 0
  [[ ! -f "build/$preset/Testing/Temporary/LastTestsFailed.log" ]] || while IFS=: read -r _ test; do
    printf '\n---- %s said at its end:\n' "$test"
    awk -v name="$test" '/^[0-9]+\/[0-9]+ Test: / {inside = ($0 ~ / Test: / && $3 == name)} /^<end of output>/ {inside = 0} inside' \
      "build/$preset/Testing/Temporary/LastTest.log" | cut -c 1-400 | tail -n 40
  done <"build/$preset/Testing/Temporary/LastTestsFailed.log"
  printf '\n'
  sed -n '/tests passed, /,$p' "$log"
  return "$status"
}

# Two of these scripts at once would build into each other's hands.
take_lock() {
  mkdir -p build
  exec 9>build/.scripts.lock
  flock -n 9 && return 0
  note "another of these scripts runs in this checkout, or what one started is ending; waiting up to a minute"
  flock -w 60 9 || fail "another of these scripts is running in this checkout"
}
