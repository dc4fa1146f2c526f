"""TensorBoard's own reader finds every number of the story that sinks_test.cpp tells."""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
tags = set(events.Tags()["scalars"])
assert {"train/loss", "train/lr", "eval/loss", "eval/accuracy", "gpu1/gpu_power_watts",
        "host/cpu_utilization_ratio"} <= tags, tags
assert not any("backend" in tag for tag in tags), tags
loss = events.Scalars("train/loss")
assert [point.step for point in loss] == list(range(1, 11)), loss
for point in loss:
    assert abs(point.value - 1 / point.step) < 1e-6, point  # stored as a float32
    assert point.wall_time > 1.6e9, point
assert [point.value for point in events.Scalars("eval/loss")] == [0.125]
power = events.Scalars("gpu0/gpu_power_watts")
assert [(point.step, point.value) for point in power] == [(5, 300.5), (10, 300.5)], power
assert events.file_version == 2.0, events.file_version
