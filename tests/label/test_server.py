"""The server answers the page it served, and nobody else."""

import contextlib
import http.client
import json
import runpy
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llpkit.label import Store

KILLS = Path(__file__).parents[2] / "benchmarks" / "label_kills.py"


@pytest.fixture(scope="module")
def running(photos, serve):
    folder, truth = photos
    return serve(folder, "--positive", "<b>bright</b>", "--project", "p"), truth


def ask(server, method="POST", path="/api/state", body=b"{}", token=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    sent = {"Content-Type": "application/json", "Host": f"127.0.0.1:{server.port}"}
    token = server.token if token is None else token
    if token:
        sent["Cookie"] = f"llpkit-token-{server.port}={token}"
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    try:
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def test_the_page_carries_the_token_into_a_cookie(running):
    server, _ = running
    status, text, headers = ask(server, "GET", f"/?token={server.token}", token="")
    assert status == 200
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert b"&lt;b&gt;bright&lt;/b&gt;" in text
    assert "default-src 'self'" in headers["content-security-policy"]


def test_a_label_against_the_count_is_answered_with_the_bag(running):
    server, _ = running
    me = {"person": "contrary"}
    bag = json.loads(ask(server, path="/api/next", body=me)[1])
    ask(server, path="/api/answer", body=me | {"bag": bag["bag"], "low": 0, "high": 0})
    label = me | {"item": bag["items"][0]["id"], "value": 1}
    status, text, _ = ask(server, path="/api/label", body=label)
    assert (status, json.loads(text)["bag"]) == (409, bag["bag"])
    ask(server, path="/api/undo", body=me)
    assert ask(server, path="/api/label", body=label)[0] == 200
    ask(server, path="/api/undo", body=me)


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (403, {"token": ""}),
        (403, {"token": "guess"}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (421, {"Host": "evil.example"}),
        (421, {"Host": "127.0.0.1.evil.example:80"}),
        (415, {"Content_Type": "text/plain"}),
        (400, {"body": b"not json"}),
        (400, {"body": b"[1]"}),
        (400, {"body": b"[" * 30_000}),
        (413, {"body": b" " * 70_000}),
        (400, {"path": "/api/answer", "body": {"person": "x", "bag": 1, "low": 99, "high": 99}}),
        (400, {"path": "/api/answer", "body": {"person": "x", "bag": 10**9, "low": 0, "high": 0}}),
        (400, {"path": "/api/answer", "body": {"person": "x", "bag": True, "low": 0, "high": 0}}),
        (400, {"path": "/api/answer", "body": {"person": "\x1b", "bag": 1, "low": 0, "high": 0}}),
        (400, {"path": "/api/bag", "body": {"person": "x", "bag": 10**8}}),
        (400, {"path": "/api/bag", "body": {"person": "x", "bag": 0}}),
        (400, {"path": "/api/label", "body": {"person": "x", "item": 10**8, "value": 1}}),
        (400, {"path": "/api/label", "body": {"person": "x", "item": 1, "value": 7}}),
        (404, {"path": "/../../etc/passwd", "method": "GET"}),
        (404, {"path": "/static/..%2f..%2fserver.py", "method": "GET"}),
        (404, {"path": "/static/server.py", "method": "GET"}),
        (404, {"path": "/item/99999", "method": "GET"}),
        (404, {"path": "/item/..%2fsecret", "method": "GET"}),
        (405, {"path": "/api/answer", "method": "GET"}),
        (405, {"path": "/", "method": "PUT"}),
        (405, {"path": "/", "method": "DELETE"}),
        (405, {"path": "/api/undo", "method": "HEAD"}),
        (405, {"path": "/export", "method": "POST"}),
        (405, {"path": "/item/0", "method": "PATCH"}),
        (403, {"path": "/item/0", "method": "GET", "token": ""}),
        (403, {"path": "/export", "method": "GET", "token": "guess"}),
        (403, {"path": "/?token=guess", "method": "GET", "token": ""}),
        (403, {"path": "/api/state?token=%ff", "token": ""}),
        (403, {"Origin": "https://127.0.0.1"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
        (421, {"Host": ""}),
        (415, {"Content_Type": "multipart/form-data; boundary=x"}),
        (415, {"Content_Type": ""}),
        (400, {"body": b"\xff\xfe{}"}),
        (400, {"body": b'{"person": NaN}', "path": "/api/undo"}),
        (400, {"body": b'{"bag": ' + b"9" * 5000 + b"}", "path": "/api/bag"}),
        (400, {"body": {"person": "x", "bag": 1e300}, "path": "/api/bag"}),
        (400, {"body": {"person": "x", "bag": float("nan")}, "path": "/api/bag"}),
        (400, {"body": {"person": "x", "bag": [[1]]}, "path": "/api/bag"}),
        (400, {"path": "/api/answer", "body": {"person": "x", "bag": 1, "low": -1, "high": 0}}),
        (400, {"path": "/api/answer", "body": {"person": "x", "bag": 1, "low": 2, "high": 1}}),
        (400, {"path": "/api/answer", "body": {"person": "x", "bag": 1, "low": 0.5, "high": 1}}),
        (400, {"path": "/api/answer", "body": {"person": "x", "bag": 1, "low": "0", "high": 1}}),
        (400, {"path": "/api/answer", "body": {"bag": 1, "low": 0, "high": 1}}),
        (400, {"path": "/api/answer", "body": {"person": ["x"], "bag": 1, "low": 0, "high": 1}}),
        (400, {"path": "/api/next", "body": {"person": "\ud800"}}),
        (400, {"path": "/api/next", "body": {"person": "x" * 60_000}}),
        (400, {"path": "/api/label", "body": {"person": "x", "item": -1, "value": 1}}),
        (400, {"path": "/api/label", "body": {"person": "x", "item": 1, "value": -1}}),
        (404, {"path": "/item/" + "9" * 5000, "method": "GET"}),
        (404, {"path": "/item/-1", "method": "GET"}),
        (404, {"path": "/item/%00", "method": "GET"}),
        (404, {"path": "/api/../export", "method": "GET"}),
        (404, {"path": "/api/", "method": "POST"}),
        (400, {"path": "/export", "method": "GET"}),  # nothing is counted yet
    ],
)
def test_strangers_get_a_clean_refusal(running, status, changes):
    server, _ = running
    found, text, _ = ask(server, **changes)
    assert found == status, text
    assert b"Traceback" not in text
    assert len(text) < 1000
    assert ask(server)[0] == 200


def test_a_websocket_is_refused(running):
    server, _ = running
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
    key = {"Sec_WebSocket_Key": "x3JJHMbDL1EzLkh9GBhXDw=="}
    found, _, _ = ask(server, "GET", "/api/state", b"", **upgrade, **key)
    assert 400 <= found < 500


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(10**400, id="huge"), -1, float("inf"), float("nan"), "long", None, True],
)
def test_an_answer_with_an_odd_time_is_kept(running, seconds):
    server, _ = running
    body = {"person": "clock", "bag": 1, "low": 1, "high": 1, "seconds": seconds}
    assert ask(server, path="/api/answer", body=body)[0] == 200
    people = json.loads(ask(server)[1])["people"]
    assert [0 <= each["seconds"] <= 3600 for each in people if each["name"] == "clock"] == [True]
    assert ask(server, path="/api/undo", body={"person": "clock"})[0] == 200


def test_a_body_of_100_mb_is_refused_unread(running):
    server, _ = running
    size = 100 * 2**20
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        head = (
            f"POST /api/answer HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Cookie: llpkit-token-{server.port}={server.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        )
        raw.sendall(head.encode())
        sent = 0
        with contextlib.suppress(OSError):  # the server hangs up in the middle
            while sent < size:
                sent += raw.send(b" " * 2**20)
        with contextlib.suppress(OSError):
            assert raw.recv(64).startswith(b"HTTP/1.1 413")
    assert sent < size
    assert ask(server)[0] == 200


def test_an_endless_body_is_cut_off(running):
    server, _ = running
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        head = (
            f"POST /api/state HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Cookie: llpkit-token-{server.port}={server.token}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        raw.sendall(head.encode())
        sent = 0
        try:
            while sent < 100 * 2**20:
                raw.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        except OSError:
            pass
        assert sent < 100 * 2**20
    assert ask(server)[0] == 200


def test_a_thousand_requests_at_once(running):
    server, _ = running

    def one(_):
        try:
            return ask(server)[0]
        except OSError:
            return "refused"

    with ThreadPoolExecutor(100) as pool:
        found = set(pool.map(one, range(1000)))
    assert found <= {200, 503, "refused"}
    assert 200 in found
    assert ask(server)[0] == 200


def test_a_second_server_on_the_same_project_is_refused(running, capfd):
    from llpkit.cli import main

    server, _ = running
    folder = server.arguments[0]
    project = str(server.cwd / "p")
    assert main(["label", folder, "--project", project, "--no-browser"]) == 2
    assert "in use by process" in capfd.readouterr().err


def children(parent):
    """The processes that another one started; empty where the system has no /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_answers_survive_kills_of_the_server():
    """A small form of the benchmark with 200 kills."""
    command = [sys.executable, str(KILLS), "--kills", "3", "--seconds", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 lost" in done.stdout


def test_the_benchmark_of_kills_notices_a_lost_answer(tmp_path):
    kills = runpy.run_path(str(KILLS))
    (tmp_path / "counted").mkdir()
    store = Store(tmp_path / "counted" / "counts.sqlite")
    store.set_items(["a", "b"])
    bag = store.add_bag("both", [0, 1])
    store.answer(bag, "Ada", 1, 1, seconds=0.5)
    store.close()
    kept, lost = {0.5: (bag, "Ada", 1)}, {0.75: (bag, "Ada", 2)}
    assert kills["missing"](tmp_path, kept) == 0
    assert kills["missing"](tmp_path, kept | lost) == 1


@pytest.mark.slow
def test_the_process_that_trains_ends_with_the_server(photos, serve):
    server = serve(photos[0], "--project", "q")
    for round_ in range(2):
        for _ in range(7):
            bag = json.loads(ask(server, path="/api/next", body={"person": "Ada"})[1])
            body = {"person": "Ada", "bag": bag["bag"], "low": 1, "high": 2, "seconds": 1.5}
            assert ask(server, path="/api/answer", body=body)[0] == 200
        workers = children(server.process.pid)
        server.stop(signal.SIGKILL)
        while any(map(alive, workers)):  # the process that trains ends by itself
            time.sleep(0.1)
        base = sqlite3.connect(server.cwd / "q" / "counts.sqlite")
        assert base.execute("select count(*) from answer").fetchone() == (7 * (round_ + 1),)
        base.close()
        server.start()
