# What setup.sh, test.sh, demo.sh and lint.sh share; sourced, never run.
# shellcheck shell=bash disable=SC2034

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cache="${XDG_CACHE_HOME:-${HOME:?HOME is not set, so there is no place for the cache}/.cache}/lockstep"
torch_version=2.11.0
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
