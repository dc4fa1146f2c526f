# What setup.sh and get_libtorch.sh share: wheels fetched into the cache; sourced after
# common.sh, never run. They set worked=yes when there was something to fetch.
# shellcheck shell=bash disable=SC2034,SC2154

stamp=.lockstep-complete

# need_space GB WHAT: before a large download, not in the middle of it.
need_space() {
  local available_kb
  mkdir -p "$cache" 2>/dev/null || fail 3 "cannot create $cache; set XDG_CACHE_HOME to a folder you can write to"
  available_kb="$(df -Pk "$cache" | awk 'NR == 2 {print $4}')"
  ((available_kb >= $1 * 1000000)) ||
    fail 3 "$2 needs $1 GB free in $cache, which has $((available_kb / 1000000)) GB; free some, or set XDG_CACHE_HOME"
}

# A Python that can make a virtual environment: the first on PATH, else the system's.
python_with_venv() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  fail 3 "no python3 here can make a virtual environment (it needs venv and ensurepip)"
}

# Two setups at once: the second waits, then finds the work done.
lock_cache() {
  exec 9>"$cache/lock"
  flock --nonblock 9 || { say "waiting for another setup to finish its download" && flock 9; }
}
unlock_cache() { exec 9>&-; }

complete() { [[ "$(cat "$1/$stamp" 2>/dev/null)" == "$2" ]]; }

# fetch_wheels FOLDER GB WHAT [pip argument]...: the folder appears whole or not at all.
fetch_wheels() {
  local folder="$1" gigabytes="$2" what="$3"
  shift 3
  complete "$folder" "$*" && return
  worked=yes
  need_space "$gigabytes" "$what"
  lock_cache
  if ! complete "$folder" "$*"; then
    rm -rf "$cache"/.fetch.*  # we hold the lock, so these are of runs that were killed
    local work python
    work="$(mktemp -d "$cache/.fetch.XXXXXX")"
    python="$(python_with_venv)"
    say "fetching $what into $folder"
    # A fresh environment: the system's pip may refuse to install (PEP 668) or be absent.
    "$python" -m venv "$work/venv" || fail 3 "could not make a virtual environment in $work"
    # TMPDIR: /tmp may be small, and a rename within one file system is no copy.
    TMPDIR="$work" "$work/venv/bin/python" -m pip install --disable-pip-version-check \
      --only-binary=:all: --target "$work/wheels" "$@" >&2 ||
      { rm -rf "$work" && fail 3 "fetching $what failed: pip's message is above; run this again when the cause is gone"; }
    printf '%s' "$*" >"$work/wheels/$stamp"
    rm -rf "$folder"
    mv "$work/wheels" "$folder"
    rm -rf "$work"
  fi
  unlock_cache
}

# Sets $libtorch: LibTorch in the cache, with CUDA's libraries where there is a GPU.
fetch_libtorch() {
  # The Python version picks one of several wheels with the same C++ libraries in them;
  # fixed, so that the download does not depend on the Python that is here.
  local any_python=(--python-version 3.11)
  if gpu_present; then
    fetch_wheels "$cache/libtorch-$torch_version-gpu" 12 \
      "LibTorch $torch_version with its CUDA libraries (about 2.5 GB, 4.7 GB on disk)" \
      "${any_python[@]}" "torch==$torch_version"
    libtorch="$cache/libtorch-$torch_version-gpu/torch"
  else
    # LibTorch's CPU library names cudart and cupti; the rest of CUDA it can do without.
    fetch_wheels "$cache/libtorch-$torch_version" 3 \
      "LibTorch $torch_version (about 0.6 GB, 1.2 GB on disk)" \
      --no-deps "${any_python[@]}" "torch==$torch_version" \
      'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*'
    libtorch="$cache/libtorch-$torch_version/torch"
  fi
}
