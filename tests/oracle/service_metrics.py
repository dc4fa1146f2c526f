"""Prometheus's own Python reader and its promtool take what the server shows at /metrics."""
import os
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
families = {family.name: family for family in text_string_to_metric_families(text)}
states = {sample.labels["state"]: sample.value for sample in families["lockstep_server_jobs"].samples}
assert states["queued"] == 1 and sum(states.values()) == 1, states
assert all(family.documentation for family in families.values())
promtool = os.path.join(os.path.dirname(sys.executable), "promtool")
checked = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True, check=False)
assert checked.returncode == 0 and not checked.stderr, checked
