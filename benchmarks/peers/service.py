"""The three read routes of benchmarks/service.py, by FastAPI: for uvicorn, over the same database and run.

    STATE=FOLDER_OF_THE_SERVER uvicorn --app-dir benchmarks/peers service:app

It does what ours does for these routes: the token by its digest, the job from SQLite, the metrics from the
run directory, thinned.
"""
import hashlib
import json
import os
import pathlib
import sqlite3
import time

from fastapi import FastAPI, Header, HTTPException

STATE = pathlib.Path(os.environ["STATE"])
app = FastAPI()
database = sqlite3.connect(STATE / "lockstep.db", check_same_thread=False)
database.row_factory = sqlite3.Row


def identify(authorization):
    secret = (authorization or "").removeprefix("Bearer ")
    row = database.execute(
        "SELECT id, user, role FROM tokens WHERE hash = ? AND revoked = 0 AND (expires = 0 OR expires > ?)",
        (hashlib.sha256(secret.encode()).hexdigest(), int(time.time() * 1000))).fetchone()
    if row is None:
        raise HTTPException(401)
    return row


def job_of(identity, job):
    row = database.execute("SELECT * FROM jobs WHERE id = ?", (job,)).fetchone()
    if row is None or (identity["role"] != "admin" and row["user"] != identity["user"]):
        raise HTTPException(404)
    return row


@app.get("/healthz")
async def healthz():
    return {"status": "ok"}


@app.get("/v1/jobs/{job}")
async def get_job(job: str, authorization: str | None = Header(None)):
    row = dict(job_of(identify(authorization), job))
    row["history"] = [dict(change) for change in database.execute(
        "SELECT time, state, reason FROM history WHERE job = ? ORDER BY number", (job,))]
    row["run"] = json.loads((STATE / "jobs" / job / "run" / "run.json").read_text())
    return row


@app.get("/v1/jobs/{job}/metrics")
async def get_metrics(job: str, points: int = 100, authorization: str | None = Header(None)):
    job_of(identify(authorization), job)
    lines = (STATE / "jobs" / job / "run" / "metrics.jsonl").read_text().splitlines()
    stride = max(1, -(-len(lines) // points))
    return {"items": [json.loads(line) for line in lines[::stride]]}
