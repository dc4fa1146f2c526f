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

# Text and hyperparameters, as their plugins read them.
from tensorboard.plugins.hparams import plugin_data_pb2  # noqa: E402

assert events.Tags()["tensors"] == ["config/text_summary"], events.Tags()["tensors"]
page = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
assert "    optim:" in page, page
content = events.PluginTagToContent("hparams")
assert set(content) == {"_hparams_/experiment", "_hparams_/session_start_info",
                        "_hparams_/session_end_info"}, content.keys()


def parsed(tag):
    data = plugin_data_pb2.HParamsPluginData()
    data.ParseFromString(content[tag])
    return data


experiment = parsed("_hparams_/experiment").experiment
names = {info.name for info in experiment.hparam_infos}
assert "optim.lr" in names, names
# The metric that counts stands beside the losses.
metrics = {metric.name.tag for metric in experiment.metric_infos}
assert metrics == {"train/loss", "eval/loss", "eval/accuracy"}, metrics
start = parsed("_hparams_/session_start_info").session_start_info
assert start.hparams["optim.lr"].number_value > 0, start
assert start.hparams["optim.name"].string_value == "adamw", start
assert start.group_name and start.start_time_secs > 1.6e9, start
assert parsed("_hparams_/session_end_info").session_end_info.status == 1
