#!/usr/bin/env bash
# Makes the pictures of docs/tutorial.md: what a terminal shows, and the page of a report, by
# Chromium without a screen.
#
#   scripts/screenshots.sh             docs/pictures/*.png, by the programs in build/bin
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

(($# == 0)) || fail 2 "takes no arguments, got '$1'"
lockstep="$root/build/bin/lockstep"
[[ -x "$lockstep" ]] || fail 3 "there is no $lockstep; run scripts/setup.sh first"
for tool in chromium script python3; do
  command -v "$tool" >/dev/null || fail 3 "there is no $tool; apt-get install chromium util-linux python3 fonts-dejavu-core"
done
pictures="$root/docs/pictures"
most_bytes=150000
columns=110
mkdir -p "$pictures"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# Pages show commands, names of runs and of the machine, but no place of somebody's.
mkdir -p "$work/demo/build"
ln -s "$root/recipes" "$work/demo/recipes"
ln -s "$root/build/bin" "$work/demo/build/bin"
export XDG_STATE_HOME="$work/state"

# shoot PAGE NAME WIDTH HEIGHT
shoot() {
  chromium --headless --no-sandbox --disable-lcd-text --disable-gpu --hide-scrollbars --user-data-dir="$work/chromium" \
    --window-size="$3,$4" --screenshot="$work/$2.png" "file://$1" >"$work/chromium.log" 2>&1 ||
    { cat "$work/chromium.log" >&2 && fail 1 "chromium made no picture of $2"; }
  local bytes
  bytes="$(stat -c %s "$work/$2.png")"
  ((bytes <= most_bytes)) || fail 1 "$2.png has $bytes bytes, more than $most_bytes: show less of it"
  mv "$work/$2.png" "$pictures/"
  say "docs/pictures/$2.png, $((bytes / 1000)) kB"
}

# terminal NAME FROM LINES COMMAND...: runs it in a terminal, and takes a picture of so many
# lines from the first on that has FROM in it.
terminal() {
  local name="$1" from="$2" lines="$3" output
  shift 3
  say "$*"
  output="$(cd "$work/demo" && script -qec "stty cols $columns rows 50; $*" /dev/null </dev/null)" ||
    { printf '%s\n' "$output" >&2 && fail 1 "'$*' failed: its output is above"; }
  grep -F -A "$((lines - 1))" -m 1 -e "$from" <<<"$output" | python3 "$root/tools/terminal_page.py" "\$ $*" >"$work/$name.html"
  shoot "$work/$name.html" "$name" 1020 "$((lines * 21 + 60))"
}

terminal plan "candidates" 22 build/bin/lockstep plan --model gpt2-1.5b --hardware 8xa100-40 batch.global=512
terminal train "plan predicted" 26 build/bin/lockstep train recipes/fashion_mnist_quick.yaml --run-dir runs/first
(cd "$work/demo" && build/bin/lockstep train recipes/fashion_mnist_quick.yaml --run-dir runs/slower optim.lr=5e-4) >"$work/train.log" 2>&1 ||
  { cat "$work/train.log" >&2 && fail 1 "the second run failed: its output is above"; }
(cd "$work/demo" && build/bin/lockstep report runs/first runs/slower -o two.html)
shoot "$work/demo/two.html" report 1020 950
