#!/usr/bin/env bash
# Tests that take as long as you give them. Findings are kept in build-fuzz/findings.
#
#   scripts/soak.sh fuzz [SECONDS]   every fuzzer for that long (default: 60), under the
#                                    address and undefined-behaviour sanitizers
#   scripts/soak.sh checkpoint [KILLS]
#                                    training that saves every step, by one rank and by two, killed so often
#                                    (default: 1000; LOCKSTEP_SOAK_SEED repeats a run)
#   scripts/soak.sh faults [CELLS]   every fault in every phase to every rank over every backend (default: all
#                                    200), as a table: exit status, time until the end, what was left
#   scripts/soak.sh service [KILLS]  the server of jobs, killed so often (default: 500), and the supervisors of
#                                    jobs, killed a fifth as often (LOCKSTEP_SOAK_SEED repeats a run)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

memory_mb=2048  # of a fuzzer; an input has at most 64 kB, so more is a finding

soak_fuzz() {
  local seconds="${1:-60}" build="$root/build-fuzz" target failed=no
  [[ "$seconds" =~ ^[1-9][0-9]*$ ]] || fail 2 "'$seconds' is not a number of seconds"
  "$root/scripts/setup.sh" --no-build
  install_packages clang-14
  (cd "$root" && cmake --preset fuzz >&2) || fail 3 "configuring failed: CMake's message is above"
  local targets=(safetensors manifest pickle torch_file
    tiktoken_file tokenizer_json vocab_and_merges encode json_lines chat_template
    remote_recipe request_target http_body uploads stored_json)
  ninja -C "$build" -j "$(build_jobs)" fuzz_seeds "${targets[@]/#/fuzz_}" >&2 || fail 1 "the build failed"
  "$build/fuzz/fuzz_seeds" "$build/corpus"
  mkdir -p "$build/findings"
  # Without this an undefined behaviour is a line in the log, and the run a good one.
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  for target in "${targets[@]}"; do
    say "fuzz_$target for $seconds s"
    "$build/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb="$memory_mb" \
      -timeout=10 -print_final_stats=1 -artifact_prefix="$build/findings/$target-" "$build/corpus/$target" \
      >"$build/fuzz_$target.log" 2>&1 || failed=yes
    grep -E 'number_of_executed_units|peak_rss|ERROR|SUMMARY' "$build/fuzz_$target.log" || true
  done
  [[ "$failed" == no ]] || fail 1 "there are findings in $build/findings; the logs are beside it"
}

soak_checkpoint() {
  local kills="${1:-1000}" build="$root/build"
  [[ "$kills" =~ ^[1-9][0-9]*$ ]] || fail 2 "'$kills' is not a number of kills"
  "$root/scripts/setup.sh" --no-build
  ninja -C "$build" -j "$(build_jobs)" test_system >&2 || fail 1 "the build failed"
  LOCKSTEP_SOAK_CHECKPOINT_KILLS="$kills" OMP_NUM_THREADS=1 \
    "$build/tests/test_system" --gtest_filter='CheckpointSoak.*' || fail 1 "see above; the seed repeats the kills"
}

soak_faults() {
  local cells="${1:-200}" build="$root/build"
  [[ "$cells" =~ ^[1-9][0-9]*$ ]] || fail 2 "'$cells' is not a number of cells"
  "$root/scripts/setup.sh" --no-build
  ninja -C "$build" -j "$(build_jobs)" test_system >&2 || fail 1 "the build failed"
  LOCKSTEP_SOAK_FAULTS="$cells" OMP_NUM_THREADS=1 \
    "$build/tests/test_system" --gtest_filter='Faults.*' || fail 1 "see the rows that end in WRONG"
}

soak_service() {
  local kills="${1:-500}" build="$root/build"
  [[ "$kills" =~ ^[1-9][0-9]*$ ]] || fail 2 "'$kills' is not a number of kills"
  "$root/scripts/setup.sh" --no-build
  ninja -C "$build" -j "$(build_jobs)" test_server >&2 || fail 1 "the build failed"
  LOCKSTEP_SOAK_KILLS="$kills" LOCKSTEP_SOAK_SUPERVISOR_KILLS=$(((kills + 4) / 5)) \
    "$build/tests/test_server" --gtest_filter='KillTest.*' || fail 1 "see above; the seed repeats the kills"
}

case "${1:-}" in
  fuzz) soak_fuzz "${@:2}" ;;
  checkpoint) soak_checkpoint "${@:2}" ;;
  faults) soak_faults "${@:2}" ;;
  service) soak_service "${@:2}" ;;
  -h | --help) sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" ;;
  *) fail 2 "say what to do: scripts/soak.sh fuzz [SECONDS], checkpoint [KILLS], faults [CELLS] or service [KILLS]" ;;
esac
