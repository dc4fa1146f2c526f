#!/usr/bin/env bash
# clang-tidy over the control plane (about a minute on two cores). The checks of format,
# layers, lists and documents are not here but in every test run: ctest -L lint.
#
#   scripts/lint.sh               the control plane
#   scripts/lint.sh --all         the data plane too (LibTorch's headers: many minutes)
#   scripts/lint.sh FILE...       these sources
#   scripts/lint.sh --fix-format  only formats all sources in place
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all=no
wanted=()
for argument in "$@"; do
  case "$argument" in
    --all) all=yes ;;
    --fix-format)
      install_packages clang-format-14
      exec python3 -B "$root/tools/check_format.py" "$root" --fix
      ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" && exit 0 ;;
    -*) fail 2 "unknown option '$argument'; scripts/lint.sh --help lists the options" ;;
    *) wanted+=("$(realpath "$argument")") ;;
  esac
done

install_packages clang-tidy-14
"$root/scripts/setup.sh" --no-build
# A precompiled header of g++ is of no use to clang, and it looks at sources one by one.
build="$root/build-tidy"
data_plane=OFF
[[ "$all" == no && ${#wanted[@]} == 0 ]] || data_plane=ON
(cd "$root" && cmake --preset tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DLOCKSTEP_UNITY=OFF -DLOCKSTEP_DATA_PLANE=$data_plane -DLOCKSTEP_BENCHMARKS=OFF >/dev/null) ||
  fail 3 "configuring build-tidy failed: CMake's message is above"

if ((${#wanted[@]} == 0)); then
  mapfile -t modules < <(sed -E 's/^[a-z]+ ([a-z]+):.*/\1/' "$build/layers.txt")
  mapfile -t wanted < <(find "${modules[@]/#/$root/lockstep/}" -name '*.cpp' | sort)
  wanted+=("$root/apps/lockstep.cpp")
  [[ "$all" == no ]] || wanted+=("$root/apps/lockstep_worker.cpp" "$root/apps/worker_main.cpp")
fi
begin=$SECONDS
say "clang-tidy over ${#wanted[@]} sources"
status=0
printf '%s\0' "${wanted[@]}" |
  xargs -0 -n 1 -P "$(build_jobs)" clang-tidy-14 -p "$build" --quiet \
    2> >(grep -vE '^[0-9]+ warnings? generated' >&2) || status=1
((status == 0)) || fail 1 "clang-tidy has findings, above ($((SECONDS - begin)) s)"
say "no findings in ${#wanted[@]} sources ($((SECONDS - begin)) s)"
