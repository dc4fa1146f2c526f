#!/usr/bin/env bash
# Sets up, builds, and trains a CNN on the real Fashion-MNIST: on every GPU, or with a
# rank for each core of a machine without one.
#
#   scripts/demo.sh                 the recipe as it is
#   scripts/demo.sh train.epochs=1  arguments go to `lockstep train`
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$root/scripts/setup.sh"
cd "$root"  # so that the run directory is made in the checkout, wherever this is called
if ! gpu_present; then
  # A power of two of them, so that the batch can be shared out; threads fill the rest.
  ranks=1
  while ((ranks * 2 <= $(nproc) && ranks < 16)); do ranks=$((ranks * 2)); done
  export LOCKSTEP_PARALLEL_RANKS="${LOCKSTEP_PARALLEL_RANKS:-$ranks}"
fi
exec build/bin/lockstep train recipes/fashion_mnist.yaml "$@"
