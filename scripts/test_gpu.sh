#!/usr/bin/env bash
# Runs every test that needs a GPU, each in a process of its own, on a machine that need
# have no compiler, no network and no CMake. Their names have Gpu, Nccl or cuda_ in them.
#
#   scripts/test_gpu.sh                the tests in build-cuda
#   scripts/test_gpu.sh 'StepGraph*'   those of them whose names fit
#   scripts/test_gpu.sh --list         their names
#   scripts/test_gpu.sh --pack FILE    puts tests and programs into a .tar.xz, stripped, with a
#                                      part of Fashion-MNIST, to be carried to another machine
#
# Where Fashion-MNIST is not installed, what was packed of it is linked to its place,
# /usr/share/datasets/fashion-mnist, and stays there.
#
# environment:
#   LOCKSTEP_BUILD   folder of the build, or of what was packed (default: build-cuda)
#   LOCKSTEP_JOBS    tests at a time (default: 4)
#   LOCKSTEP_LIMIT   seconds for one test (default: 180)
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
  for program in "$build"/tests/test_*; do
    [[ -x "$program" && ! -d "$program" ]] || continue
    # Those of the control plane look at machines that are made up, but for these two.
    grep -q libtorch "$program" || [[ "$program" == */test_system || "$program" == */test_hardware ]] || continue
    [[ -n "$(tests_of "$program" '*')" ]] || continue
    strip -o "$folder/tests/$(basename "$program")" "$program"
  done
  for program in "$build"/bin/*; do
    [[ ! -f "$program" ]] || strip -o "$folder/bin/$(basename "$program")" "$program"
  done
  if [[ -d "$images" ]]; then
    cut_idx "$images/train-images-idx3-ubyte.gz" "$kept_images" 784 16 | gzip -1 >"$folder/data/train-images-idx3-ubyte.gz"
    cut_idx "$images/train-labels-idx1-ubyte.gz" "$kept_images" 1 8 | gzip -1 >"$folder/data/train-labels-idx1-ubyte.gz"
    cp "$images"/t10k-* "$folder/data/"
  fi
  tar -C "$folder" -cf - tests bin data | xz -T0 -4 >"$1"
  say "$1: $(du -m "$1" | cut -f1) MB; elsewhere: tar -xJf FILE -C FOLDER && LOCKSTEP_BUILD=FOLDER scripts/test_gpu.sh"
}

# tests_of PROGRAM PATTERN: names of tests, a line each.
tests_of() {
  "$1" --gtest_list_tests --gtest_filter='*Gpu*:*Nccl*:*cuda_*' 2>/dev/null | awk -v pattern="$2" '
    /^[^ ]/ { suite = $1 }
    /^ /    { print suite $1 }' | while IFS= read -r name; do
    # shellcheck disable=SC2053  # the right side is a pattern
    [[ "$name" != $2 ]] || echo "$name"
  done
}

# run_one PROGRAM NAME FOLDER: leaves NAME's output in FOLDER, and a word for how it ended.
run_one() {
  local log status=0 word=passed
  log="$3/$(tr '/' '_' <<<"$2")"
  timeout --kill-after=5 "${LOCKSTEP_LIMIT:-180}" "$1" --gtest_filter="$2" >"$log.log" 2>&1 || status=$?
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
  local pattern="$1" program name
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  if [[ ! -e "$images" && -d "$build/data" ]]; then
    mkdir -p "$(dirname "$images")" 2>/dev/null && ln -s "$(cd "$build/data" && pwd)" "$images" 2>/dev/null ||
      say "warning: $images is missing and cannot be made by this user: tests that train on it will fail"
  fi
  export LOCKSTEP_TEST_SOURCE="$root" LOCKSTEP_TEST_PROGRAMS="$build/bin" OMP_NUM_THREADS=1
  for program in "$build"/tests/test_*; do
    [[ -x "$program" && ! -d "$program" ]] || continue
    for name in $(tests_of "$program" "$pattern"); do
      while (($(jobs -rp | wc -l) >= ${LOCKSTEP_JOBS:-4})); do wait -n || true; done
      run_one "$program" "$name" "$folder" &
    done
  done
  wait
  local log
  for log in "$folder"/*.end; do
    [[ -e "$log" ]] || fail 1 "no test fits '$pattern' in $build/tests"
    case "$(cat "$log")" in
      failed | hung)
        printf '\n--- %s\n' "$(basename "${log%.end}")"
        tail -n 40 "${log%.end}.log"
        ;;
    esac
  done
  local failed
  failed="$(count_of 'failed|hung')"
  printf '\n%s passed, %s failed, %s skipped\n' "$(count_of passed)" "$failed" "$(count_of skipped)"
  ((failed == 0))
}

have_build() {
  compgen -G "$build/tests/test_*" >/dev/null ||
    fail 3 "there are no tests in '$build/tests'; build them (scripts/setup.sh --cuda && ninja -C build-cuda), or set LOCKSTEP_BUILD"
}

case "${1:-}" in
  -h | --help) usage ;;
  --pack) have_build && pack "${2:?--pack needs a file}" ;;
  --list)
    have_build
    for program in "$build"/tests/test_*; do
      [[ -x "$program" && ! -d "$program" ]] && tests_of "$program" '*'
    done
    ;;
  -*) fail 2 "unknown option '$1'; scripts/test_gpu.sh --help lists the options" ;;
  *) have_build && run_all "${1:-*}" ;;
esac
