#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets, from the recorded cases of the protocol and a few by hand: `seeds.py FOLDER`."""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
root = pathlib.Path(__file__).resolve().parent.parent


def seed(target, name, data):
    path = folder / target
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(data)


cases = [json.loads(line) for line in (root / "tests/data/wire.jsonl").read_text().splitlines()]
for at, case in enumerate(cases):
    # Each character of the file is a byte.
    sent = [(step["conn"], step["send"].encode("latin-1")) for step in case["steps"] if step["send"] is not None]
    names = sorted({conn for conn, _ in sent})[:3]
    parts = [b"ABC"[names.index(conn) :][:1] + text for conn, text in sent if conn in names]
    seed("session", f"case{at:03}", b"\x1e".join(parts))
    seed("wire", f"case{at:03}", b"".join(text for _, text in sent))
    for number, (_, text) in enumerate(sent):
        if text.startswith(b"PUSH "):
            seed("job", f"case{at:03}-{number}", text[5:].strip())

hello = b'HELLO {"v":2,"wid":"%s","hostname":"h","pid":1,"labels":["a"]}\n'
work = b'PUSH {"jid":"job-%d","jobtype":"t","args":[],"queue":"q%d","retry":2,"reserve_for":60}\n'
lives = [
    [b"A" + hello % b"w1", b"A" + work % (1, 1) + work % (2, 1), b"AFETCH q1\n", b'AACK {"jid":"job-1"}\n', b"AFETCH q1\n", b"a"],
    [b"A" + hello % b"w1", b"B" + hello % b"w2", b"AFETCH q1\n", b"B" + work % (1, 1), b"+\x46", b'AACK {"jid":"job-1"}\n', b"BFETCH q1\n"],
    [b"A" + hello % b"w1", b"q", b"AFETCH q1\n", b'ABEAT {"wid":"w1"}\n', b"B" + work % (1, 1), b"+\x03", b"t", b"a"],
    [b"A" + hello % b"w1", b"A" + work % (1, 1), b"AFETCH q1\n", b'AFAIL {"jid":"job-1","errtype":"E","message":"m"}\n', b"+\x50", b"AFETCH q1\n"],
    [b"CHELLO {}\n", b"CPUSHB [{},{}]\nINFO\nFLUSH\nEND\n", b"o", b"c"],
]
for at, parts in enumerate(lives):
    seed("session", f"life{at}", b"\x1e".join(parts))

selectors = """all|cordoned|wid=4qpc*|host=app-? and not version=1.2|label="a b" or label='c'|state>=quiet|health=late
age>30s or up>1d|idle>10m|rss>=512M|leases>0|not (not all and (state=running or state!=quiet))|wid="\\*\\u{2028}\\n\\""|a|(|"|age>1|((((all))))"""
for at, text in enumerate(selectors.replace("\n", "|").split("|")):
    seed("selector", f"text{at}", text.encode())

requests = [
    "GET /api/workers",
    "GET /api/workers?where=label%3Dblue",
    "GET /api/workers?where=(",
    "GET /api/stats",
    "GET /nothing",
    'POST /api/signal\n{"wid":"w1","state":"quiet"}',
    'POST /api/signal\n{"where":"label=blue","state":"terminate"}',
    'POST /api/signal\n{"all":true,"state":"running"}',
    'POST /api/cordon\n{"all":true,"cordoned":true}',
    'POST /api/cordon\n{"wid":"w2","cordoned":false}',
    "POST /api/cordon\n[",
    "!GET /api/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "!POST /api/signal HTTP/1.1\r\nHost: [::1]:1\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
]
for at, text in enumerate(requests):
    seed("api", f"request{at}", text.encode())
