#!/usr/bin/env bash
# Runs jobs of the service on a GPU of this machine, and looks whether they get what they asked for: one that shares
# it, one beside it, one that waits for all of it; cancel, pause and resume; memory that is given back; a process that
# is none of the service's.
#
#   scripts/test_service_gpu.sh            the first GPU
#   scripts/test_service_gpu.sh 3          GPU 3, as nvidia-smi counts
#
# Asks nobody on the network and needs no more than bash, coreutils, grep, sed and nvidia-smi, and takes less than a
# minute. LOCKSTEP_BIN is the folder of the programs (default: build-cuda/bin), LOCKSTEP_LIBTORCH that of LibTorch
# (default: the one of python3's torch, if there is one and the programs find no other).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
gpu="${1:-0}"
bin="${LOCKSTEP_BIN:-$root/build-cuda/bin}"
lockstep="$bin/lockstep"
patience=60  # seconds for a job to get somewhere; the first step on a GPU builds kernels

fail() {
  printf 'test_service_gpu: error: %s\n' "$*" >&2
  exit 1
}
passed() { printf 'passed  %s\n' "$*"; }

[[ -x "$lockstep" ]] || fail "'$lockstep' is not there; build with scripts/setup.sh --cuda, or set LOCKSTEP_BIN"
command -v nvidia-smi >/dev/null || fail "this machine has no nvidia-smi"
nvidia-smi -i "$gpu" >/dev/null || fail "there is no GPU $gpu"

if [[ -z "${LOCKSTEP_LIBTORCH:-}" ]] && ! "$bin/lockstep_worker" --version >/dev/null 2>&1; then
  LOCKSTEP_LIBTORCH="$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')" ||
    fail "there is no LibTorch: set LOCKSTEP_LIBTORCH to its folder"
  export LOCKSTEP_LIBTORCH
fi
problem="$("$bin/lockstep_worker" --version 2>&1 >/dev/null)" || fail "the worker does not start: $problem"

folder="$(mktemp -d)"
# Where LibTorch was found may depend on it: jobs look there, too.
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$HOME/.cache}"
export HOME="$folder" LOCKSTEP_TOKEN="" LOCKSTEP_SERVER=""
cat >"$folder/server.yaml" <<YAML
http: {port: 0}
store: {dir: '$folder/state'}
queue: {gpu_ids: [$gpu], grace: 60s}
YAML
server=""
stranger=""

stop() {
  local status=$?
  if [[ -n "$server" ]]; then
    local job
    for job in $("$lockstep" jobs 2>/dev/null | sed -n 's/^\(job-[^ ]*\).*/\1/p'); do
      "$lockstep" cancel "$job" >/dev/null 2>&1 || true
    done
    sleep 1
    kill "$server" 2>/dev/null || true
  fi
  [[ -z "$stranger" ]] || kill "$stranger" 2>/dev/null || true
  if ((status != 0)); then
    tail -n 30 "$folder/server.log" >&2 || true
    tail -n 20 "$folder"/state/jobs/*/attempts/*.log >&2 || true
  fi
  rm -rf "$folder"
}
trap stop EXIT

LOCKSTEP_TOKEN="$("$lockstep" token create --role admin --user gpu --config "$folder/server.yaml")"
"$lockstep" serve --config "$folder/server.yaml" >"$folder/url" 2>"$folder/server.log" &
server=$!
for ((i = 0; i < 100; ++i)); do
  [[ ! -s "$folder/url" ]] || break
  sleep 0.1
done
[[ -s "$folder/url" ]] || fail "the server did not start"
LOCKSTEP_SERVER="$(cat "$folder/url")"
host="${LOCKSTEP_SERVER#http://}"

# ask METHOD TARGET: the body of the answer, without curl.
ask() {
  exec 3<>"/dev/tcp/${host%:*}/${host##*:}"
  printf '%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' \
    "$1" "$2" "$LOCKSTEP_TOKEN" >&3
  sed '1,/^\r*$/d' <&3
  exec 3>&-
}
field() { "$lockstep" jobs "$1" --json | sed -n 's/.*"'"$2"'":"\([^"]*\)".*/\1/p' | head -n 1; }
state() { "$lockstep" jobs "$1" | sed -n 's/^state  //p'; }

# reaches JOB STATE
reaches() {
  local i
  for ((i = 0; i < patience * 5; ++i)); do
    [[ "$(state "$1")" != "$2" ]] || return 0
    sleep 0.2
  done
  fail "$1 is $(state "$1"), not $2: $("$lockstep" jobs "$1")"
}

# steps JOB: how far it is.
steps() { ask GET "/v1/runs/$1" | sed -n 's/.*"step":\([0-9]*\).*/\1/p' | head -n 1; }
trains() {
  local i
  for ((i = 0; i < patience * 5; ++i)); do
    [[ "$(steps "$1")" -gt "${2:-0}" ]] 2>/dev/null && return 0
    sleep 0.2
  done
  fail "$1 makes no steps: $("$lockstep" jobs "$1")"
}

# waiting JOB WORDS: why it waits, once that has these words in it; status 1 if it does not come to that.
waiting() {
  local i waits=""
  for ((i = 0; i < 50; ++i)); do
    waits="$(field "$1" waits_for)"
    [[ "$waits" != *"$2"* ]] || break
    sleep 0.2
  done
  printf '%s' "$waits"
  [[ "$waits" == *"$2"* && "$(state "$1")" == queued ]]
}

pid_of() { sed 's/.*"pid":\([0-9]*\).*/\1/' "$folder/state/jobs/$1/attempts/${2:-1}.started"; }
on_gpu() { nvidia-smi -i "$gpu" --query-compute-apps=pid --format=csv,noheader | grep -c . || true; }

cat >"$folder/recipe.yaml" <<'YAML'
model: {name: mlp, hidden: 256}
data: {name: synthetic, shape: [64]}
batch: {global: 64}
train: {steps: 100000000, log_every: 100}
checkpoint: {every: 5000}
parallel: {device: cuda}
YAML
submit() { "$lockstep" submit "$folder/recipe.yaml" --gpus 1 "$@"; }

before="$(on_gpu)"
((before == 0)) || printf 'note: %s processes compute on GPU %s already; jobs would wait for them\n' "$before" "$gpu"

ask GET /multigpu/health | grep -q '"status"' || fail "no health: $(ask GET /multigpu/health)"
passed "health: $(ask GET /multigpu/health | cut -c1-200)"
ask GET "/multigpu/gpu/$gpu/stats" | grep -q '"memory' || fail "no stats of GPU $gpu"
passed "stats of GPU $gpu"

first="$(submit --name half --memory-fraction 0.5)"
reaches "$first" running
trains "$first"
visible="$(tr '\0' '\n' <"/proc/$(pid_of "$first")/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p')"
[[ -n "$visible" && "$visible" != *,* ]] || fail "CUDA_VISIBLE_DEVICES is '$visible'"
passed "a job on half of the GPU trains; CUDA_VISIBLE_DEVICES=$visible"
grep -Eq 'fraction: *0\.5' "$folder/state/jobs/$first/run/config.yaml" ||
  fail "memory.fraction is not in its config: $(grep fraction "$folder/state/jobs/$first/run/config.yaml")"
passed "memory.fraction is its share"
(($(on_gpu) > before)) || printf 'note: nvidia-smi does not list its process (a container has numbers of its own)\n'

second="$(submit --name beside --memory-fraction 0.4)"
reaches "$second" running
trains "$second"
passed "a second one trains beside it"

third="$(submit --name whole)"
waits="$(waiting "$third" "GPU $gpu")" || fail "it is $(state "$third") and waits for '$waits'"
passed "one that wants all of it waits: $waits"

"$lockstep" cancel "$first" >/dev/null
reaches "$first" cancelled
"$lockstep" cancel "$second" >/dev/null
reaches "$second" cancelled
ask GET "/v1/runs/$first/checkpoints" | grep -q '"step":' || fail "the cancelled job left no checkpoint"
passed "cancelled with a checkpoint"

reaches "$third" running
trains "$third"
passed "the one that waited trains"

"$lockstep" pause "$third" >/dev/null
reaches "$third" paused
at="$(steps "$third")"
for ((i = 0; i < 100; ++i)); do
  (($(on_gpu) > before)) || break
  sleep 0.1
done
(($(on_gpu) <= before)) || fail "a paused job still has the GPU"
passed "paused at step $at, and gave the GPU back"
"$lockstep" resume "$third" >/dev/null
reaches "$third" running
trains "$third" "$at"
passed "went on from step $at"

kill -KILL "$server"
wait "$server" 2>/dev/null || true
"$lockstep" serve --config "$folder/server.yaml" "http.port=${host##*:}" >"$folder/url" 2>>"$folder/server.log" &
server=$!
for ((i = 0; i < 100; ++i)); do
  ask GET /healthz 2>/dev/null | grep -q ok && break
  sleep 0.1
done
now="$(steps "$third")"
trains "$third" "$now"
passed "the server was killed, the job goes on under the next one"
"$lockstep" cancel "$third" >/dev/null
reaches "$third" cancelled

tested="$(ask POST /multigpu/gpu/test)"
[[ "$tested" == *'"passed":true'* ]] || fail "the test of the GPU did not pass: $tested"
passed "the GPU computes what it should"

CUDA_VISIBLE_DEVICES="$gpu" "$lockstep" train "$folder/recipe.yaml" --run-dir "$folder/stranger" >"$folder/stranger.log" 2>&1 &
stranger=$!
for ((i = 0; i < 75; ++i)); do  # a container may have numbers of its own: then it is never listed
  (($(on_gpu) <= before)) || break
  kill -0 "$stranger" 2>/dev/null || fail "the process beside the service has ended: $(tail -n 3 "$folder/stranger.log")"
  sleep 0.2
done
if (($(on_gpu) > before)); then
  # The server looks at GPUs every five seconds.
  for ((i = 0; i < 50; ++i)); do
    [[ "$(ask GET /multigpu/health)" != *"none of ours"* ]] || break
    sleep 0.2
  done
  fourth="$(submit --name polite)"
  waits="$(waiting "$fourth" "none of ours")" ||
    fail "beside a process of somebody else it waits for '$waits', and is $(state "$fourth")"
  passed "a process of somebody else is respected: $waits"
  kill "$stranger"
  wait "$stranger" || true
  stranger=""
  reaches "$fourth" running
  "$lockstep" cancel "$fourth" >/dev/null
  reaches "$fourth" cancelled
  passed "and its job starts when that has ended"
else
  printf 'skipped a process of somebody else: nvidia-smi does not list it here\n'
fi
printf 'all passed on %s in %s s\n' "$(nvidia-smi -i "$gpu" --query-gpu=name --format=csv,noheader)" "$SECONDS"
