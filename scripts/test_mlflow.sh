#!/usr/bin/env bash
# Runs a small training against a real MLflow tracking server and reads back by MLflow's own client what has arrived:
# parameters, metrics with their steps, the state, and that a run which is taken up again is the same run there. Then a
# CNN as a job of the service, whose server is killed while it trains.
#
#   scripts/test_mlflow.sh            with an environment of its own, made in a temporary folder
#   scripts/test_mlflow.sh PYTHON     with this Python, which has mlflow
#
# LOCKSTEP_BIN is the folder of the programs (default: build/bin).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bin="${LOCKSTEP_BIN:-$root/build/bin}"
[[ -x "$bin/lockstep" ]] || fail 3 "'$bin/lockstep' is not there; run scripts/setup.sh first"
folder="$(mktemp -d)"
server=""
service=""

stop() {
  local status=$?
  [[ -z "$server" ]] || kill "$server" 2>/dev/null || true
  [[ -z "$service" ]] || kill "$service" 2>/dev/null || true
  ((status == 0)) || tail -n 20 "$folder"/server.log "$folder"/service.log "$folder"/state/jobs/*/attempts/*.log >&2 || true
  rm -rf "$folder"
}
trap stop EXIT

python="${1:-}"
if [[ -z "$python" ]]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet mlflow
  python="$folder/venv/bin/python"
fi

port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
(cd "$folder" && exec "$python" -m mlflow server --host 127.0.0.1 --port "$port" --workers 1 \
  --backend-store-uri "sqlite:///$folder/mlflow.db" --default-artifact-root "$folder/artifacts") \
  >"$folder/server.log" 2>&1 </dev/null &
server=$!
for _ in {1..300}; do
  curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
  kill -0 "$server" 2>/dev/null || fail 1 "the tracking server has ended"
  sleep 0.2
done

export MLFLOW_TRACKING_URI="http://127.0.0.1:$port"
cat >"$folder/recipe.yaml" <<'YAML'
model: {name: mlp}
data: {name: synthetic, shape: [4]}
train: {steps: 6, log_every: 1}
checkpoint: {every: 2}
parallel: {device: cpu, ranks: 1, threads: 1}
monitor: {sinks: [jsonl, mlflow], mlflow_experiment: a test}
YAML
for steps in 6 9; do
  "$bin/lockstep" train "$folder/recipe.yaml" --run-dir "$folder/run" "train.steps=$steps" >/dev/null
done

serve() {
  : >"$folder/url"
  HOME="$folder" "$bin/lockstep" serve --insecure-local "http.port=${1:-0}" "store.dir=$folder/state" \
    >"$folder/url" 2>>"$folder/service.log" </dev/null &
  service=$!
  for _ in {1..300}; do
    [[ ! -s "$folder/url" ]] || break
    sleep 0.1
  done
  [[ -s "$folder/url" ]] || fail 1 "lockstep serve did not start"
  LOCKSTEP_SERVER="$(cat "$folder/url")"
  export LOCKSTEP_SERVER
}
state() { "$bin/lockstep" jobs "$1" | sed -n 's/^state  //p'; }
# reaches JOB STATE: within two minutes.
reaches() {
  for _ in {1..600}; do
    [[ "$(state "$1")" != "$2" ]] || return 0
    sleep 0.2
  done
  fail 1 "$1 is $(state "$1"), not $2"
}

cat >"$folder/cnn.yaml" <<'YAML'
model: {name: cnn}
data: {name: synthetic, shape: [1, 28, 28]}
batch: {global: 32}
train: {steps: 60, log_every: 1}
parallel: {device: cpu, ranks: 1, threads: 1}
monitor: {sinks: [jsonl, mlflow], mlflow_experiment: a job}
YAML
serve
job="$("$bin/lockstep" submit "$folder/cnn.yaml" --name cnn)"
reaches "$job" running
kill -KILL "$service"
wait "$service" 2>/dev/null || true
serve "${LOCKSTEP_SERVER##*:}"
reaches "$job" "done"

"$python" - "$MLFLOW_TRACKING_URI" <<'PY'
import sys

from mlflow.tracking import MlflowClient

client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("a test")
runs = client.search_runs([experiment.experiment_id])
assert len(runs) == 1, [run.info.run_id for run in runs]
(run,) = runs
assert run.info.status == "FINISHED", run.info.status
assert run.data.params["model.name"] == "mlp", run.data.params
steps = [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")]
assert steps == list(range(1, 10)), steps
assert run.data.tags["lockstep.primary_metric"] == "eval/accuracy", run.data.tags
assert run.data.tags["lockstep.primary_metric_goal"] == "maximize", run.data.tags
print(f"MLflow has one run of {len(steps)} steps and {len(run.data.params)} parameters")

experiment = client.get_experiment_by_name("a job")
(job,) = client.search_runs([experiment.experiment_id])
assert job.info.status == "FINISHED", job.info.status
assert job.data.params["model.name"] == "cnn", job.data.params
steps = [point.step for point in client.get_metric_history(job.info.run_id, "train/loss")]
assert steps == list(range(1, 61)), steps
print(f"and the job of the service, with {len(steps)} steps, whose server was killed meanwhile")
PY
