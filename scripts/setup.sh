#!/usr/bin/env bash
# Makes this machine able to build Lockstep, and builds it. Does only what is missing, so
# running it again costs next to nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

usage() {
  cat <<'USAGE'
usage: scripts/setup.sh [--cuda] [--oracle] [--no-build]

  --cuda      build the CUDA flavour into build-cuda/, also where there is no GPU
  --oracle    also set up the Python that the tests compare with (4.7 GB on disk)
  --no-build  configure, but leave the building to the caller
  --help      show this

environment:
  LOCKSTEP_LIBTORCH  folder of an existing LibTorch 2.11.0 (it has lib/ and include/)
  LOCKSTEP_ARROW     off: Apache Arrow is not fetched, and data.name=parquet is not built
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
    [[ -d "$libtorch" ]] || fail 3 "LOCKSTEP_LIBTORCH names '$libtorch', which is not a folder; unset it to have LibTorch fetched"
    libtorch="$(cd "$libtorch" && pwd)"
    return
  fi
  fetch_libtorch
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

# Sets $arrow: Apache Arrow's C++ libraries and headers, which come in the wheel of pyarrow;
# Debian has no package of them. "off" where nobody wants Parquet.
provide_arrow() {
  arrow=off
  [[ "${LOCKSTEP_ARROW:-on}" != off ]] || return 0
  fetch_wheels "$cache/arrow-$arrow_version" 1 "Apache Arrow $arrow_version, for Parquet (55 MB, 170 MB on disk; LOCKSTEP_ARROW=off leaves it out)" \
    --no-deps --python-version 3.11 "pyarrow==$arrow_version"
  arrow="$cache/arrow-$arrow_version/pyarrow"
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
  local wanted="torch==$torch_version numpy safetensors scikit-learn==1.7.2 transformers==5.22.2 tensorboard==2.21.0 wandb==0.28.0 prometheus-client==0.26.0 tiktoken==0.14.0 peft==0.21.2 pyarrow==$arrow_version onnx==1.23.2 onnxruntime==1.31.1"
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

# Configures when something that CMake cannot notice by itself has changed.
configure() {
  local settings="source=$root libtorch=$libtorch nvcc=$nvcc_root cudnn_frontend=$cudnn_frontend arrow=$arrow preset=$preset unity=$unity"
  ! gpu_present || settings+=" gpu"
  [[ -f "$build/build.ninja" && "$(cat "$build/setup.stamp" 2>/dev/null)" == "$settings" ]] && return
  worked=yes
  local options=(--preset "$preset" "-DLOCKSTEP_LIBTORCH=$libtorch" "-DLOCKSTEP_NVCC_ROOT=$nvcc_root" "-DLOCKSTEP_CUDNN_FRONTEND=$cudnn_frontend" "-DLOCKSTEP_ARROW=$arrow" "-DLOCKSTEP_UNITY=$unity")
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
  run_build "$build" "${targets[@]}" || fail 1 "the build failed: the compiler's message is above"
}

mapfile -t packages < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$root/scripts/packages.txt")
install_packages "${packages[@]}"
provide_libtorch
provide_nvcc
provide_cudnn_frontend
provide_arrow
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
