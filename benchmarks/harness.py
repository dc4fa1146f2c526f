"""What every comparison shares: runs in turn, medians, the ratio first, the hardware."""
import json
import os
import platform
import statistics
import subprocess


def run_json(command, **options):
    """Runs a command and returns the JSON object on the last line that it printed."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, **options)
    return json.loads(done.stdout.strip().splitlines()[-1])


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def spread(values):
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{statistics.median(values):.4g} (p10 {low:.4g}, p90 {high:.4g})"


def compare(question, pairs, ours, theirs, peer_name, higher_is_better=True):
    """Measures ours and theirs in turn and prints a report; returns the ratio of medians."""
    a, b = [], []
    for _ in range(pairs):
        a.append(ours())
        b.append(theirs())
    ratio = statistics.median(a) / statistics.median(b)
    if not higher_is_better:
        ratio = 1 / ratio
    print(f"{question}: {ratio:.2f} x {peer_name}")
    print(f"  lockstep       {spread(a)}")
    print(f"  {peer_name:<14} {spread(b)}")
    print(f"  {pairs} pairs in turn; {cpu_model()}, {os.cpu_count()} cores, {platform.platform()}")
    return ratio
