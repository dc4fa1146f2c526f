#!/usr/bin/env bash
# Fetches LibTorch to where the programs look for it (~/.cache/lockstep); nothing is compiled.
#
#   scripts/get_libtorch.sh            does nothing where it is there
#   LOCKSTEP_LIBTORCH=FOLDER           is for a LibTorch of your own, without this script
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

(($# == 0)) || fail 2 "takes no arguments, got '$1'"
worked=no
fetch_libtorch
if [[ "$worked" == no ]]; then
  say "nothing to do, LibTorch $torch_version is in $libtorch"
else
  say "done: $libtorch"
fi
