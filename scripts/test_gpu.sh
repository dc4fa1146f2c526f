#!/usr/bin/env bash
# Runs every test that needs a GPU, each in a process of its own, on a machine that need
# have no compiler, no network and no CMake. Their names have Gpu, Nccl or cuda_ in them.
#
#   scripts/test_gpu.sh                      the tests in build-cuda
#   scripts/test_gpu.sh 'StepGraph*' 'Own*'  those of them whose names fit one of the patterns
#   scripts/test_gpu.sh --list               their programs and names
#   scripts/test_gpu.sh --pack FILE          puts tests and programs into a .tar.xz, stripped, with
#                                            a part of Fashion-MNIST, to be carried to another machine
#
# Where Fashion-MNIST is not installed, what was packed of it is linked to its place,
# /usr/share/datasets/fashion-mnist, and stays there.
#
# environment:
#   LOCKSTEP_BUILD   folder of the build, or of what was packed (default: build-cuda)
#   LOCKSTEP_JOBS    tests at a time (default: 4)
#   LOCKSTEP_LIMIT   seconds for one test (default: 300)
#   LOCKSTEP_LOGS    a folder that gets what each test printed
#   LD_LIBRARY_PATH  where LibTorch is, where the tests do not find it by themselves
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build="${LOCKSTEP_BUILD:-$root/build-cuda}"
images=/usr/share/datasets/fashion-mnist
kept_images=12000  # of 60,000: what the tests need, in a fifth of the bytes

usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

# The rest is not read: that is no error of gzip's.
unpacked() { gzip -dc "$1" 2>/dev/null || true; }

# cut_idx FILE COUNT ITEM_BYTES HEADER_BYTES: the first items of an IDX file, unpacked.
cut_idx() {
  local magic
  magic="$(unpacked "$1" | head -c 4 | od -An -tx1 | tr -d ' ')"
  printf '%b' "$(sed 's/../\\x&/g' <<<"$magic$(printf '%08x' "$2")")"
  unpacked "$1" | head -c $(($2 * $3 + $4)) | tail -c +9
}

pack() {
  local program
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  mkdir "$folder/tests" "$folder/bin" "$folder/data"
  all_tests >"$folder/tests.txt"
  while read -r program; do
    strip -o "$folder/tests/$program" "$build/tests/$program"
  done < <(cut -d' ' -f1 "$folder/tests.txt" | sort -u)
  for program in "$build"/bin/*; do
    [[ ! -f "$program" ]] || strip -o "$folder/bin/$(basename "$program")" "$program"
  done
  if [[ -d "$images" ]]; then
    cut_idx "$images/train-images-idx3-ubyte.gz" "$kept_images" 784 16 | gzip -1 >"$folder/data/train-images-idx3-ubyte.gz"
    cut_idx "$images/train-labels-idx1-ubyte.gz" "$kept_images" 1 8 | gzip -1 >"$folder/data/train-labels-idx1-ubyte.gz"
    cp "$images"/t10k-* "$folder/data/"
  fi
  # The programs have most of their code in common: a dictionary that spans them all.
  tar -C "$folder" -cf - tests.txt tests bin data | xz -T1 --lzma2=preset=4,dict=256MiB >"$1"
  say "$1: $(du -m "$1" | cut -f1) MB; elsewhere: tar -xJf FILE -C FOLDER && LOCKSTEP_BUILD=FOLDER scripts/test_gpu.sh"
}

# filter_of PROGRAM: the tests in it that need a GPU. Those of the control plane look at
# machines that are made up, but for two.
filter_of() {
  case "$(basename "$1")" in
    test_hardware) echo 'NvidiaSmi.*' ;;
    test_system) echo '*Gpu.*:*Nccl*' ;;
    *) ! readelf -d "$1" | grep -q 'NEEDED.*libtorch' || echo '*Gpu*:*Nccl*:*cuda_*' ;;
  esac
}

# all_tests: "PROGRAM NAME", a line each; as they were when they were packed. A program that
# cannot start is an error: its tests would be missed by nobody.
all_tests() {
  local program filter names nvidia
  if [[ -f "$build/tests.txt" ]]; then
    cat "$build/tests.txt"
    return
  fi
  # NVIDIA's libraries, which a machine without a GPU has from PyTorch at most.
  nvidia="$(compgen -G "$oracle/lib/python3*/site-packages/nvidia/*/lib" | paste -sd:)" || true
  [[ -z "$nvidia" ]] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$nvidia"
  for program in "$build"/tests/test_*; do
    [[ -x "$program" && ! -d "$program" ]] || continue
    filter="$(filter_of "$program")"
    [[ -n "$filter" ]] || continue
    names="$("$program" --gtest_list_tests --gtest_filter="$filter")" || fail 3 "'$program' does not start: see above"
    awk -v program="$(basename "$program")" '
      /^[^ ]/ { suite = $1; next }
      /^ /    { print program " " suite $1 }' <<<"$(grep -v '^Running main' <<<"$names")"
  done
}

# fits NAME PATTERN...
fits() {
  local name="$1" pattern
  shift
  for pattern; do
    # shellcheck disable=SC2053  # the right side is a pattern
    [[ "$name" != $pattern ]] || return 0
  done
  return 1
}

# run_one PROGRAM NAME FOLDER: leaves NAME's output in FOLDER, and a word for how it ended.
run_one() {
  local log status=0 word=passed
  log="$3/$(tr '/' '_' <<<"$2")"
  # Which algorithms a test measures is not for another one that runs beside it.
  LOCKSTEP_TEST_STATE="$log.state" timeout --kill-after=5 "${LOCKSTEP_LIMIT:-300}" "$1" --gtest_filter="$2" >"$log.log" 2>&1 || status=$?
  if ((status == 124 || status == 137)); then
    word=hung
  elif ((status != 0)) || ! grep -q '1 test from' "$log.log"; then
    word=failed
  elif grep -q '^\[  SKIPPED \]' "$log.log"; then
    word=skipped
  fi
  echo "$word" >"$log.end"
  printf '%-8s %s\n' "$word" "$2"
}

# count_of WORDS: tests that ended so.
count_of() { cat "$folder"/*.end | grep -cxE "$1" || true; }

run_all() {
  local program name logs="${LOCKSTEP_LOGS:-}"
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  if [[ ! -e "$images" && -d "$build/data" ]]; then
    mkdir -p "$(dirname "$images")" 2>/dev/null && ln -s "$(cd "$build/data" && pwd)" "$images" 2>/dev/null ||
      say "warning: $images is missing and cannot be made by this user: tests that train on it will fail"
  fi
  export LOCKSTEP_TEST_SOURCE="$root" LOCKSTEP_TEST_PROGRAMS="$build/bin" OMP_NUM_THREADS=1
  all_tests >"$folder/tests.txt"
  while read -r program name; do
    fits "$name" "$@" || continue
    while (($(jobs -rp | wc -l) >= ${LOCKSTEP_JOBS:-4})); do wait -n || true; done
    run_one "$build/tests/$program" "$name" "$folder" </dev/null &
  done <"$folder/tests.txt"
  wait
  local log
  for log in "$folder"/*.end; do
    [[ -e "$log" ]] || fail 1 "no test in $build/tests fits $*"
    case "$(cat "$log")" in
      failed | hung)
        printf '\n--- %s\n' "$(basename "${log%.end}")"
        tail -n 40 "${log%.end}.log"
        ;;
    esac
  done
  [[ -z "$logs" ]] || { mkdir -p "$logs" && cp "$folder"/*.log "$logs"; }
  local failed
  failed="$(count_of 'failed|hung')"
  printf '\n%s passed, %s failed, %s skipped\n' "$(count_of passed)" "$failed" "$(count_of skipped)"
  ((failed == 0))
}

have_build() {
  [[ -d "$build" ]] || fail 3 "there is no folder '$build'; LOCKSTEP_BUILD names one"
  build="$(cd "$build" && pwd)"
  compgen -G "$build/tests/test_*" >/dev/null ||
    fail 3 "there are no tests in '$build/tests'; build them (scripts/setup.sh --cuda && ninja -C build-cuda), or set LOCKSTEP_BUILD"
}

case "${1:-}" in
  -h | --help)
    usage
    ;;
  --pack)
    have_build
    pack "${2:?--pack needs a file}"
    ;;
  --list)
    have_build
    all_tests
    ;;
  -*)
    fail 2 "unknown option '$1'; scripts/test_gpu.sh --help lists the options"
    ;;
  *)
    have_build
    (($# > 0)) || set -- '*'
    run_all "$@"
    ;;
esac
