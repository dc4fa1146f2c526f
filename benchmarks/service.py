#!/usr/bin/env python3
"""How many reads a second does `lockstep serve` answer, how late, in how much memory? Against FastAPI.

    benchmarks/service.py --python PYTHON_WITH_FASTAPI_AND_UVICORN [--program build/bin/lockstep]
        [--wrk wrk] [--clients 500] [--streams 200] [--seconds 60] [--rounds 3] [--no-training]

Both serve the same database and the same run; the peer is benchmarks/peers/service.py under uvicorn with
uvloop and httptools. wrk asks, over keep-alive connections, from the same machine. Then, for ours: streams of
events beside the readers; a server that starts with 10,000 jobs; a training beside 50 requests a second, which
--no-training leaves out: for a worker that computes nothing (build/tests/fake_worker).
Ends with status 1 if a goal is missed.
"""
import argparse
import asyncio
import http.client
import json
import os
import pathlib
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import harness

root = pathlib.Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--python", required=True)
parser.add_argument("--program", default=str(root / "build" / "bin" / "lockstep"))
parser.add_argument("--wrk", default="wrk")
parser.add_argument("--clients", type=int, default=500)
parser.add_argument("--streams", type=int, default=200)
parser.add_argument("--seconds", type=int, default=60)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--no-training", action="store_true")
arguments = parser.parse_args()
missed = []
RECIPE = {"model": {"name": "mlp"}, "data": {"name": "synthetic", "shape": [4]}, "train": {"steps": 200, "log_every": 1},
          "parallel": {"device": "cpu", "ranks": 1, "threads": 1}}


def goal(text, met):
    print(f"  {'met' if met else 'MISSED'}: {text}")
    if not met:
        missed.append(text)


class Ours:
    """`lockstep serve` as a process."""

    def __init__(self, state, token=None):
        self.state = state
        words = ["http.port=0", f"store.dir={state}", "limits.requests_per_minute=10000000",
                 "limits.changes_per_minute=10000000", "limits.streams_per_token=10000"]
        environment = dict(os.environ, HOME=str(state))
        begin = time.monotonic()
        self.process = subprocess.Popen([arguments.program, "serve", *words], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=environment)
        self.url = self.process.stdout.readline().strip()
        self.seconds_to_start = time.monotonic() - begin
        if not self.url:
            sys.exit("the server did not start")
        self.token = token or self.command("token", "create", "--role", "admin", "--user", "bench").strip()

    def command(self, *words):
        config = self.state / "server.yaml"
        config.write_text(f"store: {{dir: '{self.state}'}}\n", encoding="utf-8")
        return subprocess.run([arguments.program, *words, "--config", str(config)], check=True,
                              capture_output=True, text=True).stdout

    def ask(self, target, body=None):
        request = urllib.request.Request(self.url + target, data=body and json.dumps(body).encode(),
                                         headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def submit(self, recipe):
        return self.ask("/v1/jobs", {"recipe": recipe})["id"]

    def wait_until(self, job, *states):
        while (state := self.ask(f"/v1/jobs/{job}")["state"]) not in states:
            if state in ("failed", "cancelled"):
                sys.exit(f"the job is {state}: {self.ask(f'/v1/jobs/{job}')['reason']}")
            time.sleep(0.1)

    def most_memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Peer:
    """FastAPI under uvicorn."""

    def __init__(self, state, workers):
        self.url = "http://127.0.0.1:8478"
        self.process = subprocess.Popen(
            [arguments.python, "-m", "uvicorn", "--app-dir", str(root / "benchmarks" / "peers"), "service:app",
             "--port", "8478", "--log-level", "error", "--no-access-log", "--loop", "uvloop", "--http", "httptools",
             "--workers", str(workers)], env=dict(os.environ, STATE=str(state)))
        for _ in range(300):
            try:
                urllib.request.urlopen(self.url + "/healthz").read()
                return
            except OSError:
                time.sleep(0.1)
        sys.exit("uvicorn did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def wrk(url, token, seconds):
    """Requests a second, the 99th percentile in ms, and how many failed."""
    done = subprocess.run([arguments.wrk, "-t1", f"-c{arguments.clients}", f"-d{seconds}s", "--latency",
                           "-H", f"Authorization: Bearer {token}", url],
                          check=True, capture_output=True, text=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done)[1])
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", done).groups()
    late = float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
    sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", done)
    failed = (int(wrong[1]) if wrong else 0) + (sum(map(int, sockets.groups())) if sockets else 0)
    return {"rate": rate, "p99_ms": late, "failed": failed}


def compare_routes(ours, job):
    """Each route of both, in turn; the peer with one worker and with two, the better one counts."""
    for name, route in (("healthz", "/healthz"), ("a job", f"/v1/jobs/{job}"),
                        ("metrics of a job", f"/v1/jobs/{job}/metrics?points=10")):
        mine, theirs = [], {1: [], 2: []}
        for _ in range(arguments.rounds):
            mine.append(wrk(ours.url + route, ours.token, 5))
            for workers, rounds in theirs.items():
                peer = Peer(ours.state, workers)
                rounds.append(wrk(peer.url + route, ours.token, 5))
                peer.stop()
        rate = statistics.median(one["rate"] for one in mine)
        best = max(statistics.median(one["rate"] for one in rounds) for rounds in theirs.values())
        print(f"{name}: {rate / best:.1f} x FastAPI ({rate:.0f} against {best:.0f} requests a second; "
              f"p99 {statistics.median(one['p99_ms'] for one in mine):.1f} ms; "
              f"failed {sum(one['failed'] for one in mine)})")
        goal(f"{name}: at least 5 x FastAPI", rate / best >= 5)


async def follow(url, token, target, counts):
    """One stream, until it is cancelled."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    try:
        while line := await reader.readline():
            counts["events"] += line.startswith(b"data:")
        counts["ended"] += 1
    finally:
        writer.close()


async def load(ours, job, seconds):
    """Clients that read, beside streams of a job that goes on."""
    counts = {"events": 0, "ended": 0}
    streams = [asyncio.create_task(follow(ours.url, ours.token, f"/v1/jobs/{job}/metrics/stream", counts))
               for _ in range(arguments.streams)]
    await asyncio.sleep(1)
    result = await asyncio.to_thread(wrk, f"{ours.url}/v1/jobs/{job}", ours.token, seconds)
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    return result, counts


def measure_load(ours, job):
    result, counts = asyncio.run(load(ours, job, arguments.seconds))
    memory = ours.most_memory() / 2**20
    print(f"{arguments.clients} clients and {arguments.streams} streams for {arguments.seconds} s: "
          f"{result['rate']:.0f} requests a second, p99 {result['p99_ms']:.1f} ms, {result['failed']} failed, "
          f"{counts['events']} events, {counts['ended']} streams cut off, {memory:.0f} MB")
    goal("p99 of reads under 50 ms", result["p99_ms"] < 50)
    goal("no error", result["failed"] == 0 and counts["ended"] == 0 and counts["events"] > 0)
    goal("memory under 150 MB", memory < 150)


def cores_of(job):
    """The cores of the job's supervisor, and with it of its ranks."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"supervise" in words and job.encode() in words:
            return os.sched_getaffinity(int(process.name))
    sys.exit("the job has no supervisor")


def steps_a_second(ours, job, seconds, requests):
    """By the times that the training itself has written, while it is asked so often over one connection."""
    host, port = ours.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port))

    def ask(target):
        connection.request("GET", target, headers={"Authorization": f"Bearer {ours.token}"})
        return connection.getresponse().read()

    def last():
        return json.loads(ask(f"/v1/jobs/{job}/metrics?points=2"))["items"][-1]
    first, begin, asked = last(), time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        if asked < requests * passed:
            ask(f"/v1/jobs/{job}")
            asked += 1
        else:
            time.sleep(0.002)
    end = last()
    return (end["step"] - first["step"]) / (end["time"] - first["time"])


def measure_slowdown(ours):
    """Quiet and busy in turn; whoever asks does so from a core that is not the job's, since it is no part of the server."""
    recipe = json.loads(json.dumps(RECIPE))
    recipe["train"] = {"steps": 100_000_000, "log_every": 1000}
    job = ours.submit(recipe)
    ours.wait_until(job, "running")
    time.sleep(3)
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, (every - cores_of(job)) or every)
    quiet, busy = [], []
    for _ in range(8):
        quiet.append(steps_a_second(ours, job, 4, 0))
        busy.append(steps_a_second(ours, job, 4, 50))
    os.sched_setaffinity(0, every)
    ours.ask(f"/v1/jobs/{job}/cancel", {})
    slower = 100 * (1 - statistics.median(b / q for b, q in zip(busy, quiet)))
    print(f"a training beside 50 requests a second: {slower:.2f} % slower "
          f"({harness.spread(busy)} against {harness.spread(quiet)} steps a second)")
    goal("slowed by under 1 %", slower < 1)


def measure_restart(ours):
    """A database with 10,000 jobs: copies of the one that is done, and 500 that wait behind one."""
    database = sqlite3.connect(ours.state / "lockstep.db")
    names = [row[1] for row in database.execute("PRAGMA table_info(jobs)") if row[1] not in ("number", "id")]
    columns = ", ".join(names)
    for i in range(10_000):
        database.execute(f"INSERT INTO jobs (id, {columns}) SELECT ?, {columns} FROM jobs WHERE state = 'done' "
                         "LIMIT 1", (f"job-copy{i}",))
        database.execute("INSERT INTO history (job, time, state, reason) VALUES (?, 1, 'done', '')", (f"job-copy{i}",))
    database.execute("UPDATE jobs SET state = 'paused' WHERE id LIKE 'job-copy%' AND number % 20 = 0")
    database.commit()
    database.close()
    seconds = []
    for _ in range(5):
        ours.process.kill()
        ours.process.wait()
        ours = Ours(ours.state, ours.token)
        ours.ask("/v1/jobs")
        seconds.append(ours.seconds_to_start)
    print(f"restart with 10,000 jobs in the database, after SIGKILL: {harness.spread(seconds)} s until it answers")
    goal("restart under 1 s", max(seconds) < 1)
    return ours


def main():
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(pathlib.Path(folder))
        job = ours.submit(RECIPE)
        ours.wait_until(job, "done")
        compare_routes(ours, job)
        recipe = json.loads(json.dumps(RECIPE))
        recipe["train"] = {"steps": 100_000_000, "log_every": 1000}
        running = ours.submit(recipe)
        ours.wait_until(running, "running")
        measure_load(ours, running)
        ours.ask(f"/v1/jobs/{running}/cancel", {})
        ours.wait_until(running, "cancelled")
        if not arguments.no_training:
            measure_slowdown(ours)
        ours = measure_restart(ours)
        ours.stop()
    print(f"{harness.cpu_model()}, {os.cpu_count()} cores; load of the machine {os.getloadavg()[0]:.1f}")
    sys.exit(1 if missed else 0)


main()
