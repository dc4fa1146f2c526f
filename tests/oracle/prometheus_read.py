"""Prometheus's own Python reader and its promtool take what the sink writes."""
import math
import os
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
families = {family.name: family for family in text_string_to_metric_families(text)}
assert families["lockstep_step"].type == "counter", families.keys()
loss = {sample.labels["split"]: sample.value for sample in families["lockstep_loss"].samples}
assert math.isnan(loss["train"]) and loss["eval"] == 0.125, loss
assert all(family.documentation for family in families.values())
power = families["lockstep_gpu_power_watts"].samples
assert [sample.labels["gpu"] for sample in power] == ["0", "1"], power
assert "DCGM_FI_DEV_POWER_USAGE" in families

promtool = os.path.join(os.path.dirname(sys.executable), "promtool")
checked = subprocess.run([promtool, "check", "metrics"], input=text.encode(),
                         capture_output=True, check=False)
complaints = [line for line in (checked.stdout + checked.stderr).decode().splitlines()
              if "DCGM" not in line]  # NVIDIA's names break the rules for names
assert not complaints, complaints
