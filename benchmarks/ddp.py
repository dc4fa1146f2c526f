#!/usr/bin/env python3
"""Data parallelism on CPUs, one thread a rank: Lockstep against PyTorch's DDP over Gloo.

    cmake --build build --target bench_ddp
    benchmarks/ddp.py --python PYTHON_WITH_TORCH [--only cnn,mlp,overlap,overhead,model,sweep]
                      [--pairs 7] [--steps 30] [--cores 0-1]

Everything that is compared runs in turn, so that a busy machine slows all of it down. Prints
the rows of the results page: what was asked, the ratio, the medians over the rounds.
"""
import argparse
import datetime
import os
import pathlib
import platform
import statistics

import harness

root = pathlib.Path(__file__).resolve().parents[1]
program = str(root / "build" / "benchmarks" / "bench_ddp")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--only", default="cnn,mlp,overlap,overhead,model,sweep")
parser.add_argument("--pairs", type=int, default=7)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--cores", default="", help="as taskset -c takes them; empty: all")
arguments = parser.parse_args()
environment = dict(os.environ, OMP_NUM_THREADS="1")


def run(command):
    prefix = ["taskset", "-c", arguments.cores] if arguments.cores else []
    return harness.run_json(prefix + command, env=environment)


def ours(what, **words):
    words.setdefault("steps", arguments.steps)
    return run([program, what] + [f"{name}={value}" for name, value in words.items()])


def theirs(model, batch, how, ranks):
    peer = [str(root / "benchmarks" / "peers" / "ddp.py"), model, str(batch), str(arguments.steps), how]
    if ranks == 1:
        return run([arguments.python] + peer)
    torchrun = str(pathlib.Path(arguments.python).parent / "torchrun")
    return run([torchrun, "--standalone", "--nproc-per-node", str(ranks)] + peer)


def in_turn(sides):
    """Measures every side once a round; returns each side's records."""
    records = {name: [] for name in sides}
    for _ in range(arguments.pairs):
        for name, measure in sides.items():
            records[name].append(measure())
    return records


def median(records, field="samples_s"):
    return statistics.median(record[field] for record in records)


def best(records, field="samples_s"):
    return max(record[field] for record in records)


def paired(records, one, other):
    """The median over the rounds of the ratio in one round: what a busy machine disturbs least."""
    pairs = zip(records[one], records[other])
    return statistics.median(a["samples_s"] / b["samples_s"] for a, b in pairs)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def verdict(value, target, at_least=True):
    return f"{'met' if (value >= target) == at_least else 'missed'} ({target})"


def compare_steps(model, batch):
    records = in_turn({
        "lockstep 1": lambda: ours("step", model=model, batch=batch, backend="none"),
        "lockstep gloo": lambda: ours("step", model=model, batch=batch, backend="gloo"),
        # Over shm `ddp` shards the update unless told not to (parallel.shard_update).
        "lockstep shm": lambda: ours("step", model=model, batch=batch, backend="shm", stage=1),
        "lockstep shm, whole update": lambda: ours("step", model=model, batch=batch, backend="shm"),
        "pytorch 1": lambda: theirs(model, batch, "ddp", 1),
        "pytorch ddp": lambda: theirs(model, batch, "ddp", 2),
        "pytorch ddp_view": lambda: theirs(model, batch, "ddp_view", 2),
    })
    for name, of_side in records.items():
        row(f"{model}: {name}", f"{median(of_side):.0f}",
            f"best {best(of_side):.0f}; CPU time of a rank's step {median(of_side, 'cpu_ms'):.1f} ms",
            f"{median(of_side, 'ms'):.2f}")
    return records


def better_peer(records):
    return max(("pytorch ddp", "pytorch ddp_view"), key=lambda name: median(records[name]))


def cnn():
    records = compare_steps("cnn", 128)
    peer = better_peer(records)
    for backend in ("shm", "gloo"):
        efficiency = paired(records, f"lockstep {backend}", "lockstep 1") / 2
        row(f"cnn over {backend}: efficiency of 2 ranks", f"{efficiency:.3f}", "", verdict(efficiency, 0.93))
        ratio = paired(records, f"lockstep {backend}", peer)
        row(f"cnn over {backend} against {peer}", f"{ratio:.2f} x", "", verdict(ratio, 1.0))
    row("cnn: PyTorch's efficiency of 2 ranks", f"{paired(records, peer, 'pytorch 1') / 2:.3f}", "", "")


def mlp():
    records = compare_steps("mlp", 64)
    peer = better_peer(records)
    for backend, target in (("gloo", 1.05), ("shm", 1.5)):
        ratio = paired(records, f"lockstep {backend}", peer)
        row(f"mlp over {backend} against {peer} over Gloo", f"{ratio:.2f} x", "", verdict(ratio, target))


def overlap():
    for backend in ("gloo", "shm"):
        records = [ours("overlap", model="cnn", batch=128, backend=backend) for _ in range(arguments.pairs)]
        # Of the medians: the difference of two steps is small against their noise.
        exposed = (median(records, "with_ms") - median(records, "without_ms")) / median(records, "alone_ms")
        row(f"cnn over {backend}: share of the exchange that a step sees", f"{exposed:.2f}",
            f"step {median(records, 'with_ms'):.2f} ms, without exchange {median(records, 'without_ms'):.2f}, "
            f"exchange alone {median(records, 'alone_ms'):.2f}, waited {median(records, 'waited_ms'):.2f}",
            verdict(exposed, 0.2, at_least=False))


def overhead():
    records = [ours("overhead", steps=300) for _ in range(arguments.pairs)]
    for peer in ("plain", "single"):
        cost = median(records, f"engine_to_{peer}") - 1
        row(f"engine at one rank, 200 parameters of 10 kB, against {peer}", f"{100 * cost:+.1f} %",
            f"{median(records, 'engine_ms'):.2f} ms against {median(records, peer + '_ms'):.2f}",
            verdict(cost, 0.03, at_least=False))


def fit(backend):
    """Latency and bandwidth from isolated all-reduces of two ranks: t = 2 L + B / W, by least squares of
    the relative error."""
    by_size = {}
    for _ in range(max(3, arguments.pairs // 2)):
        for size, _, least in ours("reduce", backend=backend)["seconds"]:
            by_size.setdefault(size, []).append(least)
    points = [(size, min(times)) for size, times in by_size.items()]
    # Of  sum ((a + b s - t) / t)^2.
    aa = sum(1 / t**2 for _, t in points)
    ab = sum(s / t**2 for s, t in points)
    bb = sum(s * s / t**2 for s, t in points)
    at, bt = sum(1 / t for _, t in points), sum(s / t for s, t in points)
    determinant = aa * bb - ab * ab
    a, b = (at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant
    return max(a, 0) / 2, 1 / b


def model():
    for backend in ("gloo", "shm"):
        latency, bandwidth = fit(backend)
        row(f"modelled like {backend}: fitted on isolated all-reduces of 2 ranks", "",
            f"latency {1e6 * latency:.0f} µs, {bandwidth / 1e9:.2f} GB/s", "")
        for net, batch in (("mlp", 64), ("cnn", 128)):
            for ranks in (2, 3, 4):
                sides = in_turn({
                    "real": lambda: ours("step", model=net, batch=batch, backend=backend, ranks=ranks),
                    "modelled": lambda: ours("step", model=net, batch=batch, backend="modelled", ranks=ranks,
                                             latency=latency, bandwidth=round(bandwidth), busy=1),
                })
                error = 1 / paired(sides, "modelled", "real") - 1
                row(f"modelled like {backend}: step of {net}, {ranks} ranks", f"{100 * error:+.0f} %",
                    f"{median(sides['modelled'], 'ms'):.1f} ms against {median(sides['real'], 'ms'):.1f}",
                    verdict(abs(error), 0.1, at_least=False))


def sweep():
    """Bucket sizes on a network of 25 Gbit/s and 20 µs that is modelled."""
    for ranks in (8, 64, 512):
        cells = []
        for mib in (1, 4, 25, 100):
            record = ours("step", model="mlp", batch=64, backend="modelled", ranks=1, modelled_ranks=ranks,
                          latency=20e-6, bandwidth=3_125_000_000, bucket=mib << 20, buckets=1)
            cells.append(f"{mib} MiB {record['ms']:.1f}")
        row(f"modelled, mlp, {ranks} ranks: ms a step by bucket", "", ", ".join(cells), "")


print(f"{datetime.date.today()}; {harness.cpu_model()}, {os.cpu_count()} cores, {platform.platform()}; "
      f"{arguments.pairs} rounds in turn of {arguments.steps} steps; load "
      f"{os.getloadavg()[0]:.1f} at the start\n")
row("question", "seen: ratio, or median samples/s", "best, details", "ms, or target")
row("---", "---", "---", "---")
for name in arguments.only.split(","):
    {"cnn": cnn, "mlp": mlp, "overlap": overlap, "overhead": overhead, "model": model, "sweep": sweep}[name]()
print(f"\nload {os.getloadavg()[0]:.1f} at the end")
