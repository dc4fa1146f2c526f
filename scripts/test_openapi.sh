#!/usr/bin/env bash
# Asks a server of jobs with requests that schemathesis makes up from its OpenAPI document, in all its phases, and fails
# if an answer is not as the document says, or the server fails.
#
#   scripts/test_openapi.sh [EXAMPLES]   so many for each operation (default: 20)
#
# LOCKSTEP_BIN is the folder of the programs (default: build/bin), SCHEMATHESIS a program that is there already.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

examples="${1:-20}"
[[ "$examples" =~ ^[1-9][0-9]*$ ]] || fail 2 "'$examples' is no number of examples"
bin="${LOCKSTEP_BIN:-$root/build/bin}"
[[ -x "$bin/lockstep" ]] || fail 3 "'$bin/lockstep' is not there; run scripts/setup.sh first"
folder="$(mktemp -d)"
server=""

stop() {
  [[ -z "$server" ]] || { kill "$server" && wait "$server"; } 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT

program="${SCHEMATHESIS:-}"
if [[ -z "$program" ]]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet schemathesis
  program="$folder/venv/bin/schemathesis"
fi

# Jobs that it submits need not train.
mkdir "$folder/bin"
cp "$bin/lockstep" "$folder/bin/lockstep"
worker="$bin/lockstep_worker"
[[ ! -x "$bin/../tests/fake_worker" ]] || worker="$bin/../tests/fake_worker"
cp "$worker" "$folder/bin/lockstep_worker"
cat >"$folder/server.yaml" <<YAML
store: {dir: $folder/state}
limits: {requests_per_minute: 10000000, changes_per_minute: 10000000, failed_logins_per_minute: 1000000, streams_per_token: 10000}
quota: {jobs_per_user: 100000}
YAML
token="$("$folder/bin/lockstep" token create --role admin --user ada --config "$folder/server.yaml")"
"$folder/bin/lockstep" serve --config "$folder/server.yaml" http.port=0 >"$folder/url" 2>"$folder/server.log" &
server=$!
until [[ -s "$folder/url" ]]; do
  kill -0 "$server" 2>/dev/null || fail 1 "the server has ended: $(tail -n 3 "$folder/server.log")"
  sleep 0.1
done

(cd "$folder" && "$program" run "$(cat url)/openapi.json" -H "Authorization: Bearer $token" \
  --exclude-operation-id revokeToken --exclude-checks positive_data_acceptance -n "$examples" --request-timeout 30) ||
  fail 1 "see above"
kill -0 "$server" 2>/dev/null || fail 1 "the server has ended: $(tail -n 3 "$folder/server.log")"
