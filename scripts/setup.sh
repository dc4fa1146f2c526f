#!/usr/bin/env bash
# Makes this machine able to build Lockstep, and builds it. Does only what is missing, so
# running it again costs next to nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: scripts/setup.sh [--cuda] [--oracle] [--no-build]

  --cuda      build the CUDA flavour into build-cuda/, also where there is no GPU
  --oracle    also set up the Python that the tests compare with (4.7 GB on disk)
  --no-build  configure, but leave the building to the caller
  --help      show this

environment:
  LOCKSTEP_LIBTORCH  folder of an existing LibTorch 2.11.0 (it has lib/ and include/)
  LOCKSTEP_ORACLE    off: --oracle does nothing
  LOCKSTEP_UNITY     OFF: every source is compiled on its own, for those who change them
  XDG_CACHE_HOME     where downloads are kept, in lockstep/ (default: ~/.cache)
USAGE
}

preset=release
build="$root/build"
with_oracle=no
with_build=yes
for argument in "$@"; do
  case "$argument" in
    --cuda) preset=cuda build="$root/build-cuda" ;;
    --oracle) with_oracle=yes ;;
    --no-build) with_build=no ;;
    -h | --help) usage && exit 0 ;;
    *) fail 2 "unknown option '$argument'; scripts/setup.sh --help lists the options" ;;
  esac
done

worked=no  # whether this run had anything to do
# A cold build is three times as fast, one after a change of a line is slower.
unity="${LOCKSTEP_UNITY:-ON}"
stamp=.lockstep-complete

# need_space GB WHAT: before a large download, not in the middle of it.
need_space() {
  local available_kb
  mkdir -p "$cache" 2>/dev/null || fail 3 "can not create $cache; set XDG_CACHE_HOME to a folder you can write to"
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

# Sets $libtorch: the one that the environment names, else the cached wheel.
provide_libtorch() {
  libtorch="${LOCKSTEP_LIBTORCH:-}"
  if [[ -z "$libtorch" && -n "${CMAKE_PREFIX_PATH:-}" ]]; then
    local prefix prefixes
    IFS=':;' read -ra prefixes <<<"$CMAKE_PREFIX_PATH"
    for prefix in "${prefixes[@]}"; do
      if [[ -e "$prefix/include/torch/csrc/api/include/torch/version.h" ]]; then
        libtorch="$prefix"
        break
      fi
    done
  fi
  if [[ -n "$libtorch" ]]; then
    [[ -d "$libtorch" ]] || fail 3 "LOCKSTEP_LIBTORCH names '$libtorch', which is no folder; unset it to have LibTorch fetched"
    libtorch="$(cd "$libtorch" && pwd)"
    return
  fi

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

# Sets $nvcc_root: "" where the machine has its own nvcc 13, or where none is wanted.
provide_nvcc() {
  nvcc_root=""
  [[ "$preset" == cuda ]] || gpu_present || return 0
  local nvcc
  for nvcc in nvcc /usr/local/cuda/bin/nvcc; do
    if "$nvcc" --version 2>/dev/null | grep -q 'release 13\.'; then
      return
    fi
  done
  # The last two pins: without them ptxas refuses the newer PTX of the others.
  fetch_wheels "$cache/nvcc-13.0" 2 "the CUDA compiler nvcc 13.0 (about 0.3 GB)" \
    'cuda-toolkit[nvcc,cudart,cccl]==13.0.2' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*'
  nvcc_root="$cache/nvcc-13.0/nvidia/cu13"
}

# Sets $cudnn_frontend: headers through which our attention reaches cuDNN; "" where no
# kernels are built.
provide_cudnn_frontend() {
  cudnn_frontend=""
  [[ "$preset" == cuda ]] || gpu_present || return 0
  fetch_wheels "$cache/cudnn-frontend-1.32.0" 1 "the headers of cuDNN's frontend (3 MB)" \
    --no-deps --python-version 3.11 'nvidia-cudnn-frontend==1.32.0'
  cudnn_frontend="$cache/cudnn-frontend-1.32.0"
}

# Built in place, because a virtual environment holds its own path; the stamp comes last,
# so an interrupted one is completed. One that works is kept: pip fetches what it lacks.
provide_oracle() {
  [[ "$with_oracle" == yes ]] || return 0
  if [[ "${LOCKSTEP_ORACLE:-on}" == off ]]; then
    say "LOCKSTEP_ORACLE=off: tests that compare with PyTorch will be skipped"
    return
  fi
  # tensorboard, wandb and prometheus-client read what our sinks write; later ones of wandb
  # have no reader in Python.
  local wanted="torch==$torch_version numpy safetensors scikit-learn==1.7.2 transformers==5.22.2 tensorboard==2.21.0 wandb==0.28.0 prometheus-client==0.26.0 tiktoken==0.14.0 peft==0.21.2"
  local python="$oracle/bin/python"
  # Its interpreter may have gone with an upgrade of the system.
  complete "$oracle" "$wanted" && "$python" -c '' 2>/dev/null && [[ -x "$oracle/bin/promtool" ]] && return
  worked=yes
  need_space 12 "the Python oracle of the tests"
  lock_cache
  if ! complete "$oracle" "$wanted" || ! "$python" -c '' 2>/dev/null; then
    say "fetching PyTorch $torch_version and others for the tests into $oracle (about 2.5 GB, 4.8 GB on disk; LOCKSTEP_ORACLE=off leaves it out)"
    if ! "$python" -c '' 2>/dev/null; then
      rm -rf "$oracle"
      "$(python_with_venv)" -m venv "$oracle" || fail 3 "could not make a virtual environment in $oracle"
    fi
    mkdir -p "$oracle/tmp"
    # shellcheck disable=SC2086  # the requirements are words
    TMPDIR="$oracle/tmp" "$python" -m pip install --disable-pip-version-check \
      $wanted >&2 ||
      fail 3 "fetching the oracle failed: pip's message is above; LOCKSTEP_ORACLE=off does without it"
    rm -rf "$oracle/tmp"
    printf '%s' "$wanted" >"$oracle/$stamp"
  fi
  [[ -x "$oracle/bin/promtool" ]] || fetch_promtool
  unlock_cache
}

# For the tests of the tokenizer, which compare with tiktoken.
provide_vocabulary() {
  [[ "$with_oracle" == yes && "${LOCKSTEP_ORACLE:-on}" != off ]] || return 0
  [[ -f "$cache/gpt2/gpt2.tiktoken" ]] && return
  worked=yes
  "$root/scripts/get_gpt2_vocab.sh" >/dev/null
}

# Prometheus's own checker, out of its package: installing that would start a server.
fetch_promtool() {
  say "fetching promtool for the tests (20 MB)"
  rm -rf "$oracle/tmp"
  mkdir "$oracle/tmp"
  (cd "$oracle/tmp" && apt-get -q download prometheus >&2 && dpkg -x prometheus_*.deb package) ||
    fail 3 "fetching the package prometheus failed: apt-get's message is above; run apt-get update, or LOCKSTEP_ORACLE=off does without it"
  mv "$oracle/tmp/package/usr/bin/promtool" "$oracle/bin/"
  rm -rf "$oracle/tmp"
}

# Configures when something that CMake can not notice by itself has changed.
configure() {
  local settings="source=$root libtorch=$libtorch nvcc=$nvcc_root cudnn_frontend=$cudnn_frontend preset=$preset unity=$unity"
  ! gpu_present || settings+=" gpu"
  [[ -f "$build/build.ninja" && "$(cat "$build/setup.stamp" 2>/dev/null)" == "$settings" ]] && return
  worked=yes
  local options=(--preset "$preset" "-DLOCKSTEP_LIBTORCH=$libtorch" "-DLOCKSTEP_NVCC_ROOT=$nvcc_root" "-DLOCKSTEP_CUDNN_FRONTEND=$cudnn_frontend" "-DLOCKSTEP_UNITY=$unity")
  # A build folder that came along with a moved or copied checkout is of no use.
  if [[ -f "$build/CMakeCache.txt" ]] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
    options+=(--fresh)
  fi
  say "configuring ${build#"$root/"}"
  (cd "$root" && cmake "${options[@]}" >&2) || fail 3 "configuring failed: CMake's message is above"
  printf '%s' "$settings" >"$build/setup.stamp"
}

build_programs() {
  [[ "$with_build" == yes ]] || return 0
  local targets=(lockstep lockstep_worker)
  [[ "$(ninja -C "$build" -n "${targets[@]}" 2>&1)" == *"no work to do"* ]] && return
  worked=yes
  say "building ${targets[*]} in ${build#"$root/"}"
  ninja -C "$build" -j "$(build_jobs)" "${targets[@]}" >&2 || fail 1 "the build failed: the compiler's message is above"
}

mapfile -t packages < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$root/scripts/packages.txt")
install_packages "${packages[@]}"
provide_libtorch
provide_nvcc
provide_cudnn_frontend
provide_oracle
provide_vocabulary
configure
build_programs
if [[ "$worked" == no ]]; then
  say "nothing to do, everything is in place"
elif [[ "$with_build" == yes ]]; then
  say "done: ${build#"$root/"}/bin/lockstep"
else
  say "done: ${build#"$root/"} is configured"
fi
