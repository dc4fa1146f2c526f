#!/usr/bin/env bash
# Runs the worker's self-test under a real Slurm: installs it, starts a cluster of this one
# machine in a temporary folder, starts 4 ranks with srun and stops everything again.
#
#   scripts/test_slurm.sh                  build/bin/lockstep_worker --selftest
#   scripts/test_slurm.sh PROGRAM ARGS...  that instead
#   scripts/test_slurm.sh --service        jobs of `lockstep serve` with queue.executor=slurm: one to its end,
#                                          one paused, resumed and cancelled, one cancelled while it waits
#
# LOCKSTEP_BIN is the folder of the programs (default: build/bin).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ranks=4
bin="${LOCKSTEP_BIN:-$root/build/bin}"
command=("$@")
((${#command[@]} > 0)) || command=("$bin/lockstep_worker" --selftest)
service=no
[[ "${command[0]}" != --service ]] || { service=yes && command=("$bin/lockstep"); }
[[ -x "$(command -v "${command[0]}")" ]] ||
  fail 3 "'${command[0]}' is not there; run scripts/setup.sh first"
[[ "$(id -u)" == 0 ]] || fail 3 "slurmd starts its tasks as their owner and has to be root"

install_packages munge slurm-wlm

folder="$(mktemp -d)"
daemons=()  # process ids, in the order they were started

stop() {
  local status=$? i
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do
    kill "${daemons[i]}" 2>/dev/null || true
    for _ in {1..50}; do
      kill -0 "${daemons[i]}" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "${daemons[i]}" 2>/dev/null || true
    wait "${daemons[i]}" 2>/dev/null || true
  done
  ((status == 0)) || tail -n 20 "$folder"/*.log >&2 || true
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND...: a daemon that stays in the foreground of its own log.
start() {
  local name="$1"
  shift
  "$@" >"$folder/$name.log" 2>&1 </dev/null &
  daemons+=($!)
}

# until_true WHAT COMMAND...: looks until it succeeds, for 30 s.
until_true() {
  local what="$1"
  shift
  for _ in {1..150}; do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  fail 1 "$what within 30 s"
}

free_ports() {
  python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))'
}

host="$(hostname -s)"
read -r controller_port node_port < <(free_ports)
mkdir "$folder"/{state,spool}
chmod 755 "$folder"
cat >"$folder/slurm.conf" <<CONF
ClusterName=lockstep_test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
# More tasks than this machine may have processors.
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=$ranks State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=5 State=UP
CONF
export SLURM_CONF="$folder/slurm.conf"

dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none
chmod 400 "$folder/munge.key"
start munged munged --foreground --force --key-file="$folder/munge.key" \
  --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" --seed-file="$folder/munge.seed"
until_true "munged does not answer" munge --socket="$folder/munge.socket" --no-input
start slurmctld slurmctld -D
start slurmd slurmd -D -N "$host"
idle() { [[ "$(sinfo --noheader --format=%T)" == idle ]]; }
until_true "slurmd's node does not come up" idle

no_job() { [[ "$(squeue --noheader)" == "" ]]; }

test_srun() {
  local status=0
  say "srun -n $ranks ${command[*]}"
  timeout 120 srun -n "$ranks" --time=2 --kill-on-bad-exit "${command[@]}" || status=$?
  ((status == 0)) || fail 1 "srun ended with status $status"
  until_true "the job does not go away" no_job
  say "passed: $ranks ranks under Slurm $(srun --version | awk '{print $2}')"
}

# is JOB STATE: whether the server says so.
is() { [[ "$("$bin/lockstep" jobs "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])')" == "$2" ]]; }

# submit STEPS CORES: prints the id of a small training.
submit() { "$bin/lockstep" submit "$folder/recipe.yaml" --cores "$2" "train.steps=$1"; }

test_service() {
  local finished waiting paused
  cat >"$folder/recipe.yaml" <<YAML
model: {name: mlp}
data: {name: synthetic, shape: [4]}
train: {steps: 1, log_every: 10}
parallel: {device: cpu, ranks: 1, threads: 1}
YAML
  "$bin/lockstep" serve --insecure-local http.port=0 queue.executor=slurm queue.slurm_interval=500ms \
    queue.grace=10s "store.dir=$folder/server" >"$folder/url" 2>"$folder/serve.log" </dev/null &
  daemons+=($!)
  until_true "the server does not answer" test -s "$folder/url"
  LOCKSTEP_SERVER="$(cat "$folder/url")"
  export LOCKSTEP_SERVER
  finished="$(submit 40 1)"
  until_true "$finished is not done" is "$finished" "done"
  paused="$(submit 100000000 "$ranks")"
  until_true "$paused does not run" is "$paused" running
  waiting="$(submit 40 1)"
  pending() { squeue --noheader --format='%j %T' | grep -q "^$1[.][0-9]* PENDING"; }
  until_true "$waiting does not wait for a processor" pending "$waiting"
  "$bin/lockstep" cancel "$waiting"
  until_true "$waiting is not cancelled" is "$waiting" cancelled
  "$bin/lockstep" pause "$paused"
  until_true "$paused is not paused" is "$paused" paused
  "$bin/lockstep" resume "$paused"
  until_true "$paused does not run again" is "$paused" running
  "$bin/lockstep" cancel "$paused"
  until_true "$paused is not cancelled" is "$paused" cancelled
  until_true "a job does not go away" no_job
  say "passed: jobs of the service under Slurm $(srun --version | awk '{print $2}')"
}

if [[ "$service" == yes ]]; then test_service; else test_srun; fi
