# What setup.sh, test.sh, demo.sh and lint.sh share; sourced, never run.
# shellcheck shell=bash disable=SC2034

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cache="${XDG_CACHE_HOME:-${HOME:?HOME is not set, so there is no place for the cache}/.cache}/lockstep"
torch_version=2.11.0
arrow_version=26.0.1
oracle="$cache/oracle-$torch_version"

# Messages go to stderr: stdout belongs to what the scripts run.
say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

# fail STATUS MESSAGE...: 2 is a wrong call, 3 a machine that lacks something.
fail() {
  local status="$1"
  shift
  say "error: $*"
  exit "$status"
}

gpu_present() { [[ -e /dev/nvidiactl || -e /dev/dxg ]]; }

# One compiler a core, but no more than memory has room for: a source that includes
# LibTorch takes about 1.5 GB to compile.
build_jobs() {
  local cores memory_kb jobs
  cores="$(nproc)"
  memory_kb="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  jobs=$((memory_kb / 1500000))
  ((jobs < cores)) || jobs="$cores"
  ((jobs > 0)) || jobs=1
  echo "$jobs"
}

# Sets $weight: what a step of the build takes, in tenths of a second on two cores. A
# source of the data plane includes LibTorch; the tests of a module are one source.
step_weight() {
  local module="${1#*object }"
  case "$1" in
    *cmake_pch*) weight=300 ;;
    *"Building "*" object tests/"*) module="${module#tests/}" weight=170 ;;
    *"Building "*" object "*) module="${module#lockstep/}" weight=70 ;;
    *) weight=3 && return ;;
  esac
  [[ "$data_plane" != *" ${module%%/*} "* ]] || weight=$((weight * 2))
}

time_to_go() {
  if (($1 < 90)); then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}

# Reads what ninja prints: its steps become a line of progress now and then, all else is
# shown. $1: the steps that there are to do, as `ninja -n` prints them.
show_progress() {
  local line weight total=0 finished=0 begin=$SECONDS shown=$SECONDS elapsed
  while IFS= read -r line; do
    step_weight "$line" && total=$((total + weight))
  done <<<"$1"
  while IFS= read -r line; do
    if [[ ! "$line" =~ ^\[[0-9]+/[0-9]+\] ]]; then
      printf '%s\n' "$line"
      continue
    fi
    step_weight "$line" && finished=$((finished + weight))
    elapsed=$((SECONDS - begin))
    if ((SECONDS - shown >= 10 && finished > 0 && finished < total)); then
      shown=$SECONDS
      say "building, $((100 * finished / total)) %, $(time_to_go $((elapsed * (total - finished) / finished))) to go"
    fi
  done
}

# run_build FOLDER [TARGET]...: what is out of date, with progress. Returns 1 where it fails.
run_build() {
  local folder="$1" steps data_plane
  shift
  steps="$(ninja -C "$folder" -n "$@" 2>&1)" || { printf '%s\n' "$steps" >&2 && return 1; }
  [[ "$steps" != *"no work to do"* ]] || return 0
  data_plane=" $(sed -n 's/^data \([a-z_]*\):.*/\1/p' "$folder/layers.txt" 2>/dev/null | paste -sd' ') apps "
  say "building $(grep -c '^\[' <<<"$steps") steps in ${folder#"$root/"}"
  ninja -C "$folder" -j "$(build_jobs)" "$@" 2>&1 | show_progress "$steps" >&2
}

# install_packages NAME...: those that are missing, as root or through sudo. Asks apt for
# nothing when all are there.
install_packages() {
  command -v dpkg-query >/dev/null ||
    fail 3 "this system has no dpkg; install what scripts/packages.txt lists, then use cmake directly (CONTRIBUTING.md)"
  local name missing=()
  local installed
  # One call for all: dpkg-query fails when it knows one of the names not at all.
  installed="$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)"
  for name in "$@"; do
    grep -qxF "installed $name" <<<"$installed" || missing+=("$name")
  done
  ((${#missing[@]} > 0)) || return 0

  local as_root=()
  if [[ "$(id -u)" != 0 ]]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      say "error: these packages are missing, and this user is not root and has no sudo: ${missing[*]}"
      fail 3 "ask an administrator to run: sudo sh -c 'apt-get update && apt-get install --yes --no-install-recommends ${missing[*]}'"
    fi
  fi
  say "installing packages: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
  "${apt[@]}" update >&2 ||
    say "warning: apt-get update failed; trying with the package lists that are here"
  "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >&2 ||
    fail 3 "apt-get could not install ${missing[*]}; its message is above"
}
