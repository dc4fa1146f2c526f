#!/usr/bin/env python3
"""Writes the well-known machines that ship with the planner.

    tools/describe_machines.py lockstep/planner/machines

Facts of data sheets and of what clouds rent; the format is that of `lockstep hardware --json`.
"""
import itertools
import json
import pathlib
import sys

GIB = 1 << 30


def gpu(name, memory_gib, compute, multiprocessors, clock, pcie):
    return {
        "name": name, "memory_total_bytes": int(memory_gib * GIB),
        "compute_major": compute[0], "compute_minor": compute[1],
        "multiprocessors": multiprocessors, "max_sm_clock_mhz": clock,
        "max_pcie_generation": pcie[0], "max_pcie_width": pcie[1],
    }


# What a driver shows as memory: less than the name says where error correction takes a part.
H100 = gpu("NVIDIA H100 80GB HBM3", 79.6, (9, 0), 132, 1980, (5, 16))
H200 = gpu("NVIDIA H200", 140.4, (9, 0), 132, 1980, (5, 16))
B200 = gpu("NVIDIA B200", 178.4, (10, 0), 148, 1965, (5, 16))
A100_80 = gpu("NVIDIA A100-SXM4-80GB", 80.0, (8, 0), 108, 1410, (4, 16))
A100_40 = gpu("NVIDIA A100-SXM4-40GB", 40.0, (8, 0), 108, 1410, (4, 16))
V100 = gpu("Tesla V100-SXM2-16GB", 16.0, (7, 0), 80, 1530, (3, 16))
L4 = gpu("NVIDIA L4", 22.5, (8, 9), 58, 2040, (4, 16))
A10G = gpu("NVIDIA A10G", 22.5, (8, 6), 80, 1710, (4, 16))
T4 = gpu("Tesla T4", 15.0, (7, 5), 40, 1590, (3, 16))
RTX3090 = gpu("NVIDIA GeForce RTX 3090", 24.0, (8, 6), 82, 1695, (4, 16))
RTX4090 = gpu("NVIDIA GeForce RTX 4090", 24.0, (8, 9), 128, 2520, (4, 16))
RTX5090 = gpu("NVIDIA GeForce RTX 5090", 31.8, (12, 0), 170, 2407, (5, 16))

EPYC = ("AMD EPYC", ["avx2"], 3000)
XEON = ("Intel Xeon", ["avx2", "avx512f"], 2700)
CORE = ("desktop CPU", ["avx2"], 4500)

MACHINES = {  # GPU, how many, NVLinks of a pair, path, peers, cores, GiB, sockets, CPU
    "dgx-h100": (H100, 8, 18, "system", True, 112, 2048, 2, XEON),
    "8xh100": (H100, 8, 18, "system", True, 96, 1024, 2, XEON),
    "8xh200": (H200, 8, 18, "system", True, 96, 2048, 2, XEON),
    "dgx-b200": (B200, 8, 18, "system", True, 112, 2048, 2, XEON),
    "dgx-a100": (A100_80, 8, 12, "system", True, 128, 2048, 2, EPYC),
    "8xa100-80": (A100_80, 8, 12, "system", True, 96, 1024, 2, EPYC),
    "8xa100-40": (A100_40, 8, 12, "system", True, 48, 1024, 2, XEON),
    "8xv100": (V100, 8, 1, "system", True, 32, 480, 2, XEON),
    "4xl4": (L4, 4, 0, "node", False, 24, 192, 1, XEON),
    "4xa10g": (A10G, 4, 0, "node", False, 24, 192, 1, EPYC),
    "4xt4": (T4, 4, 0, "node", False, 24, 192, 1, XEON),
    "2xrtx4090": (RTX4090, 2, 0, "bridge", False, 16, 128, 1, CORE),
    "2xrtx5090": (RTX5090, 2, 0, "bridge", False, 16, 128, 1, CORE),
    "1xrtx3090": (RTX3090, 1, 0, "bridge", False, 8, 64, 1, CORE),
    "1xh200": (H200, 1, 0, "system", True, 16, 128, 1, XEON),
    "cpu-16": (None, 0, 0, "system", False, 16, 64, 1, EPYC),
}


def machine(gpu_kind, count, nvlinks, path, peers, cores, memory_gib, sockets, cpu):
    model, extensions, clock = cpu
    return {
        "format": 1, "cpu_model": model, "physical_cores": cores, "logical_cores": 2 * cores,
        "sockets": sockets, "memory_total_bytes": memory_gib * GIB,
        "memory_available_bytes": memory_gib * GIB,
        "gpu_note": "" if count else "the machine has none",
        "cpu_extensions": extensions, "max_cpu_mhz": clock,
        "gpus": [{"index": i} | gpu_kind for i in range(count)],
        "gpu_pairs": [
            {"first": a, "second": b, "nvlinks": nvlinks, "path": path, "peer_access": peers}
            for a, b in itertools.combinations(range(count), 2)],
    }


def lines_of(facts):
    """JSON with one line for each field, and for each GPU and pair."""
    lines = []
    for key, value in facts.items():
        is_rows = isinstance(value, list) and value and isinstance(value[0], dict)
        rows = ",\n    ".join(json.dumps(row) for row in value) if is_rows else ""
        text = f"[\n    {rows}\n  ]" if is_rows else json.dumps(value)
        lines.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, parts in MACHINES.items():
        (folder / f"{name}.json").write_text(lines_of(machine(*parts)))


if __name__ == "__main__":
    main()
