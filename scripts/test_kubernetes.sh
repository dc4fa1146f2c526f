#!/usr/bin/env bash
# Checks the manifests of `lockstep submit --to kubernetes --dry-run` against the schemas of Kubernetes' own API, as
# kubernetes-validate ships them, with no property allowed that a schema does not have.
#
#   scripts/test_kubernetes.sh            with an environment of its own, made in a temporary folder
#   scripts/test_kubernetes.sh PYTHON     with this Python, which has kubernetes-validate
#
# LOCKSTEP_BIN is the folder of the programs (default: build/bin).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bin="${LOCKSTEP_BIN:-$root/build/bin}"
[[ -x "$bin/lockstep" ]] || fail 3 "'$bin/lockstep' is not there; run scripts/setup.sh first"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

python="${1:-}"
if [[ -z "$python" ]]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet kubernetes-validate
  python="$folder/venv/bin/python"
fi

for words in "" "--gpus 1" "--gpus 8 --cores 16"; do
  # shellcheck disable=SC2086  # several words
  "$bin/lockstep" submit "$root/recipes/fashion_mnist.yaml" --to kubernetes --dry-run --image registry.example/lockstep:1 \
    $words >"$folder/manifest.json"
  "$python" - "$folder/manifest.json" "$words" <<'PY'
import json
import sys

import kubernetes_validate

manifest = json.load(open(sys.argv[1], encoding="utf-8"))
version = kubernetes_validate.latest_version()
assert manifest["kind"] == "List", manifest["kind"]
for item in manifest["items"]:
    kubernetes_validate.validate(item, version, strict=True)
# What is wrong would be found.
broken = json.loads(json.dumps(next(item for item in manifest["items"] if item["kind"] == "Job")))
broken["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
try:
    kubernetes_validate.validate(broken, version, strict=True)
    sys.exit("a property that no schema has was not found")
except kubernetes_validate.ValidationError:
    pass
kinds = ", ".join(item["kind"] for item in manifest["items"])
print(f"Kubernetes {version}: {kinds}: as its schemas have them ({sys.argv[2] or 'no GPU'})")
PY
done
