"""W&B's own reader of offline runs finds the run of the story that sinks_test.cpp tells."""
import glob
import json
import os
import re
import sys
import zlib

from wandb.proto import wandb_internal_pb2 as pb
from wandb.sdk.internal.datastore import DataStore

(file,) = glob.glob(os.path.join(sys.argv[1], "offline-run-*", "run-*.wandb"))
assert re.search(r"offline-run-\d{8}_\d{6}-([a-z0-9]{8})/run-\1\.wandb$", file), file
# W&B's newer reader minds what its older one does not: no chunk crosses a block.
with open(file, "rb") as opened:
    content = opened.read()
at, kinds_of_chunk = 7, set()
while at < len(content):
    left = 32768 - at % 32768
    if left < 7:
        assert not any(content[at:at + left]), at
        at += left
        continue
    length, kind = int.from_bytes(content[at + 4:at + 6], "little"), content[at + 6]
    assert 7 + length <= left, (at, length)
    assert int.from_bytes(content[at:at + 4], "little") == zlib.crc32(content[at + 6:at + 7 + length])
    kinds_of_chunk.add(kind)
    at += 7 + length
assert kinds_of_chunk == {1, 2, 3, 4}, kinds_of_chunk

store = DataStore()
store.open_for_scan(file)
records = []
while (data := store.scan_data()) is not None:
    record = pb.Record()
    record.ParseFromString(data)
    records.append(record)
kinds = [record.WhichOneof("record_type") for record in records]
assert [record.num for record in records] == list(range(1, len(records) + 1))
assert kinds[:2] == ["header", "run"], kinds
assert kinds[-4:] == ["summary", "exit", "final", "footer"], kinds
assert kinds.count("stats") == 2 and kinds.count("history") == 11, kinds

run = records[1].run
assert run.project == "my project" and run.entity == "us"
assert run.display_name == "0001" and run.host == "testhost"
config = {item.key: json.loads(item.value_json) for item in run.config.update}
assert config["optim"]["name"] == "adamw" and "batch" in config, config.keys()
assert isinstance(config["monitor"]["sinks"], list), config["monitor"]["sinks"]
assert run.start_time.seconds > 1.6e9

assert kinds[2] == "metric" and kinds.count("metric") == 1, kinds
metric = records[2].metric
assert metric.name == "eval/accuracy" and metric.options.defined, metric
assert metric.goal == pb.MetricRecord.GOAL_MAXIMIZE and metric.summary.max, metric

history = []
for record in records:
    if record.WhichOneof("record_type") == "history":
        row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        assert row["_step"] == record.history.step.num
        history.append(row)
assert [row["_step"] for row in history] == list(range(0, 11))
assert history[0]["train/" + "x" * 100_000] == 7
assert history[4]["train/loss"] == 0.25 and history[4]["train/lr"] == 0.001
assert history[10]["train/loss"] == 0.1 and history[10]["eval/accuracy"] == 0.75

stats = records[kinds.index("stats")].stats
values = {item.key: json.loads(item.value_json) for item in stats.item}
assert values["gpu.0.powerWatts"] == 300.5 and values["cpu"] == 25.0, values
summary = {item.key: json.loads(item.value_json) for item in records[-4].summary.update}
assert summary["eval/loss"] == 0.125, summary
assert records[-3].exit.exit_code == 0
