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


def test_serve_explains_wrong_settings(tmp_path):
    """Without a key the command ends with 1 and says what to set."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NEXUS_")}
    env |= {"NEXUS_CONFIG_DIR": str(tmp_path), "NEXUS_DATA_DIR": str(tmp_path), "NEXUS_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-c", "from cloud.api.cli import app; app()", "serve"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "NEXUS_GATEWAY_API_KEYS" in done.stderr and "Traceback" not in done.stderr
