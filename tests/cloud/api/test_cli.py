"""The command as a process: ready line, a request, SIGTERM."""

import os
import re
import signal
import subprocess
import sys

import httpx2


def test_serve_prints_its_address_and_ends_on_sigterm(tmp_path):
    """Port 0 is told as the real port, the API answers there, and SIGTERM ends the process with 0."""
    env = os.environ | {
        "NEXUS_GATEWAY_API_KEYS": "cli-key-123",
        "NEXUS_CONFIG_DIR": str(tmp_path),
        "NEXUS_RUNTIME_DIR": str(tmp_path / "run"),
    }
    command = [sys.executable, "-c", "from cloud.api.cli import app; app()", "serve", "--port", "0"]
    command += ["--verifier", "http://127.0.0.1:9", "--log-format", "json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            match = re.fullmatch(r"Nexus gateway ready: (http://127\.0\.0\.1:[1-9]\d*)/v1\n", line)
            assert match, line + process.stderr.read()
            response = httpx2.get(match[1] + "/v1/models", headers={"authorization": "Bearer cli-key-123"})
            assert response.status_code == 503
            assert httpx2.get(match[1] + "/health").json()["status"] == "unavailable"
        finally:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == "" and "cli-key-123" not in err and '"route": "/v1/models"' in err


VERIFIER = r"""
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.reply("application/json", json.dumps({"data": [{"id": "tiny", "max_model_len": 100}]}).encode())
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.reply("text/event-stream", b"")
        for word in ("one", "two"):
            self.chunk({"choices": [{"index": 0, "delta": {"content": word}}]})
            time.sleep(1.0)
        self.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")
    def reply(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body)
    def chunk(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
"""A verifier that takes two seconds for an answer."""


def test_sigterm_drains(tmp_path):
    """After SIGTERM a running stream is finished, a new request on a new connection is 503 with Retry-After, health
    says draining, and the process ends with 0 once the stream has.
    """
    env = os.environ | {
        "NEXUS_GATEWAY_API_KEYS": "cli-key-123",
        "NEXUS_CONFIG_DIR": str(tmp_path),
        "NEXUS_RUNTIME_DIR": str(tmp_path / "run"),
    }
    command = [sys.executable, "-c", "from cloud.api.cli import app; app()", "serve", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    headers = {"authorization": "Bearer cli-key-123"}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with subprocess.Popen([sys.executable, "-c", VERIFIER], stdout=subprocess.PIPE, text=True) as verifier:
        try:
            command += ["--verifier", f"http://127.0.0.1:{verifier.stdout.readline().strip()}"]
            with subprocess.Popen(command, env=env, **pipes) as process:
                try:
                    url = re.search(r"http://\S+(?=/v1)", process.stdout.readline())[0]
                    chat = f"{url}/v1/chat/completions"
                    with httpx2.stream("POST", chat, json=body, headers=headers, trust_env=False) as running:
                        lines = running.iter_lines()
                        next(line for line in lines if "one" in line)
                        process.send_signal(signal.SIGTERM)
                        while (health := httpx2.get(f"{url}/health", trust_env=False)).status_code == 200:
                            pass
                        assert health.json()["status"] == "draining"
                        refused = httpx2.post(chat, json=body, headers=headers, trust_env=False)
                        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
                        assert refused.json()["error"]["code"] == "unavailable"
                        assert [line for line in lines if line][-1] == "data: [DONE]"
                finally:
                    process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
        finally:
            verifier.kill()


def test_serve_explains_wrong_settings(tmp_path):
    """Without a key the command ends with 1 and says what to set."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NEXUS_")}
    env |= {"NEXUS_CONFIG_DIR": str(tmp_path), "NEXUS_DATA_DIR": str(tmp_path), "NEXUS_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-c", "from cloud.api.cli import app; app()", "serve"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "NEXUS_GATEWAY_API_KEYS" in done.stderr and "Traceback" not in done.stderr
