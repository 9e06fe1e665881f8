"""`stand_in_demo.py FOLDER MARK KIND`: the demo with stand-ins for verifier and agent, and the fake gateway."""

import sys
from pathlib import Path

import httpx2

from cloud.terminal.demo import Demo, Wishes
from cloud.terminal.paint import Painter
from cloud.terminal.parts import PartSpec
from cloud.terminal.recipe import Pair, Recipe, free_port

HERE = Path(__file__).resolve().parent
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PARENT = f"""
import pathlib, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {STUBBORN!r}, sys.argv[1]], start_new_session=True)
subprocess.Popen([sys.executable, "-c", {STUBBORN!r}, sys.argv[1]])
print("both are up", flush=True)
pathlib.Path(sys.argv[2]).touch()
time.sleep(600)
"""
BROKEN = "import sys; print('\\n'.join(f'line {n}' for n in range(40))); sys.exit(3)"
UNDRAFTED = '{"drafted": 0, "accepted": 0, "verify_steps": 5, "tokens_per_step": 1.0}'


def answers(url: str) -> bool:
    try:
        return httpx2.get(url, trust_env=False).is_success
    except httpx2.HTTPError:
        return False


def main(folder: Path, mark: str, kind: str) -> int:
    port = free_port()
    up = folder / "up"
    gateway = [sys.executable, str(HERE / "fake_gateway.py"), str(port)]
    gateway += [UNDRAFTED if kind == "undrafted" else "null", mark]
    verifier = [sys.executable, "-c", BROKEN if kind == "broken" else PARENT, mark, str(up)]
    parts = [
        PartSpec(name="verifier", title="verifier (x)", command=verifier, is_ready=up.exists, timeout_s=60),
        PartSpec(
            name="gateway",
            title="gateway",
            command=gateway,
            is_ready=lambda: answers(f"http://127.0.0.1:{port}/health"),
            timeout_s=60,
        ),
    ]
    made = Recipe(
        pair=Pair("large", "small", "auto"),
        url=f"http://127.0.0.1:{port}/v1",
        key="right-key",
        fetch=[sys.executable, "-c", f"import sys; sys.exit({int(kind == 'unfetched')})"],
        parts=parts,
    )
    wishes = Wishes(pair=made.pair, prompt="Capital of France?", max_tokens=9, draft=4, port=0, once=kind != "stays")
    return Demo(made, wishes, folder, Painter(sys.stdout, colour=kind == "coloured"), grace_s=1.0).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
