#!/usr/bin/env bash
# Sets up, builds, and trains a CNN on the real Fashion-MNIST.
#
#   scripts/demo.sh                 the recipe as it is
#   scripts/demo.sh train.epochs=1  arguments go to `lockstep train`
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$root/scripts/setup.sh"
cd "$root"  # so that the run directory is made in the checkout, wherever this is called
exec build/bin/lockstep train recipes/fashion_mnist.yaml "$@"
