"""The same training step in PyTorch eager: fixed batch, fused AdamW. Prints one JSON line.

    cnn_step.py cnn BATCH STEPS [THREADS]
"""
import json
import pathlib
import sys
import time

started = time.time()
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "oracle"))
from network import Cnn

batch, steps = int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
torch.manual_seed(0)
net = Cnn()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
x, y = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))


def step():
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


step()
first = time.time() - started
for _ in range(3):
    step()
times = []
for _ in range(steps):
    begin = time.perf_counter()
    step()
    times.append(time.perf_counter() - begin)
median = sorted(times)[len(times) // 2]
print(json.dumps({"who": "pytorch eager", "ms": 1e3 * median, "samples_s": batch / median,
                  "start_to_first_step_s": first, "started": started}))
