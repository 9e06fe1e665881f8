"""Recorded answers of the target and what the draft model guesses at each of their positions.

Answers are drafter-invariant: they depend on model, prompt, parameters and seed only. So whoever drafts, a
node is asked at prefixes of one known answer, and what the draft model says there can be recorded once and
replayed by nodes that cost no CPU. What a model would guess *behind* its own first wrong guess is not
recorded: the target goes another way there, so no such guess can be accepted.

`python -m bench.traces record` makes bench/data/traces.jsonl: the float32 verifier answers all prompts at
temperature 0 and 0.8, then one teacher-forced pass of each model per answer gives the guesses and both
distributions. `python -m bench.traces show` prints the acceptance figures.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "traces.jsonl"
PROMPT_FILES = (HERE / "prompts.jsonl", HERE / "more_prompts.jsonl")
TARGET, DRAFT = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"
TOKENS = 96
"""Length of a recorded answer, unless the model ends it earlier."""
TEMPERATURES = (0.0, 0.8)
TOP_P = 0.95
FIRST_SEED = 1000
"""Seed of the first prompt; each further one has the next."""
BATCH = 16
ENGINE_FLAGS = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", str(BATCH), "--seed", "0")


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer. The lists `guess` to `independent` have an entry for each token of it.

    Entry t is about the choice after prompt and the first t answer tokens, whose noise is that of position
    `len(prompt_tokens) + t - 1`. Distributions are those after temperature and top-p.
    """

    id: str
    kind: str
    prompt: str
    prompt_tokens: list[int]
    """As the engine sees them, after the chat template."""
    temperature: float
    top_p: float
    seed: int
    tokens: list[int]
    """The target's answer, with its end-of-sequence token if it ended."""
    guess: list[int]
    """The draft model's choice with the target's noise; its likeliest token at temperature 0."""
    argmax: list[int]
    """The draft model's likeliest token."""
    runner_up: list[int]
    """The draft model's second choice: second-best noised logit (second-likeliest token at temperature 0)."""
    margin: list[float]
    """How far the runner-up is behind the guess, in scaled and noised logits (plain logits at temperature 0)."""
    one_minus_tv: list[float]
    """1 - total variation between the two models' distributions: no drafter can match more often."""
    independent: list[float]
    """Probability that independent samples of the two distributions agree."""

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Shares of positions, over some traces."""

    positions: int
    coupled: float
    argmax: float
    independent: float
    one_minus_tv: float


def load(path: Path = DATA) -> list[Trace]:
    """All recorded traces, in the order of the file."""
    return [Trace(**json.loads(line)) for line in path.read_text().splitlines()]


def save(traces: Iterable[Trace], path: Path = DATA) -> None:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(trace), separators=(",", ":")) + "\n" for trace in traces))


def prompts() -> list[dict[str, Any]]:
    """The prompts of bench/run.py, and as many more of the same kinds."""
    return [json.loads(line) for path in PROMPT_FILES for line in path.read_text().splitlines()]


def acceptance(traces: Sequence[Trace]) -> Acceptance:
    """Match rates per position.

    At temperature 0 the bound is 1 where both models' likeliest tokens agree, and all four figures are one.
    """
    count = sum(len(trace.tokens) for trace in traces)

    def share(values: Iterable[float]) -> float:
        return sum(values) / count if count else 0.0

    def matches(guesses: str) -> float:
        return share(g == t for each in traces for g, t in zip(getattr(each, guesses), each.tokens, strict=True))

    return Acceptance(
        positions=count,
        coupled=matches("guess"),
        argmax=matches("argmax"),
        independent=share(value for each in traces for value in each.independent),
        one_minus_tv=share(value for each in traces for value in each.one_minus_tv),
    )


# --- recording: everything below needs vLLM, torch and both models -------------------------------------


def _answers(batch: int) -> list[dict[str, Any]]:
    """The verifier's own answers, without drafts."""
    import httpx2
    from support.servers import CPU_ENGINE, Server, free_port, nexus

    asked = [
        {**prompt, "temperature": temperature, "top_p": 1.0 if temperature == 0 else TOP_P, "seed": FIRST_SEED + index}
        for temperature in TEMPERATURES
        for index, prompt in enumerate(prompts())
    ]
    with tempfile.TemporaryDirectory(prefix="nx") as name:
        port = free_port()
        argv = nexus("verifier", "serve", TARGET, "--draft-port", f"ipc://{name}/p", "--port", str(port), *ENGINE_FLAGS)
        server = Server(argv, Path(name) / "log", env=CPU_ENGINE)
        try:
            server.wait_healthy(f"http://127.0.0.1:{port}/health")

            def one(question: dict[str, Any]) -> dict[str, Any]:
                body = {
                    "model": TARGET,
                    "messages": [{"role": "user", "content": question["prompt"]}],
                    "max_tokens": TOKENS,
                    "return_token_ids": True,
                    **{key: question[key] for key in ("temperature", "top_p", "seed")},
                }
                answer = httpx2.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=900)
                assert answer.status_code == 200, answer.text
                data = answer.json()
                print(f"  {question['id']} at {question['temperature']}", file=sys.stderr, flush=True)
                return {
                    **{key: question[key] for key in ("id", "kind", "prompt", "temperature", "top_p", "seed")},
                    "prompt_tokens": data["prompt_token_ids"],
                    "tokens": data["choices"][0]["token_ids"],
                }

            with ThreadPoolExecutor(batch) as pool:
                return list(pool.map(one, asked))
        finally:
            server.stop()


def _logits(model: Any, answer: dict[str, Any]) -> Any:
    """Float32 logits of the choice of each answer token, [tokens, vocabulary], in one teacher-forced pass."""
    import torch

    before, after = answer["prompt_tokens"], answer["tokens"]
    with torch.no_grad():
        out = model(input_ids=torch.tensor([before + after[:-1]]), logits_to_keep=len(after), use_cache=False)
    return out.logits[0].float()


def _loaded(name: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from shared.models.resolve import resolve

    loaded = AutoModelForCausalLM.from_pretrained(str(resolve(name)), dtype=torch.float32, local_files_only=True)
    return loaded.eval()


def _rows(answer: dict[str, Any]) -> Any:
    """What `shared.coupling.choose` needs to know of each answer position."""
    import torch

    from shared.coupling.choice import RowParameters

    count, first = len(answer["tokens"]), len(answer["prompt_tokens"]) - 1
    return RowParameters(
        temperature=torch.full((count,), answer["temperature"]),
        seed=torch.full((count,), answer["seed"], dtype=torch.int64),
        position=torch.arange(first, first + count),
        top_p=torch.full((count,), answer["top_p"]),
    )


def _scaled(logits: Any, answer: dict[str, Any]) -> Any:
    """Logits after temperature and filters; at temperature 0 as they are."""
    from shared.coupling.filters import filter_logits

    if answer["temperature"] == 0:
        return logits.clone()
    return filter_logits(logits / answer["temperature"], None, _rows(answer).top_p, None)


def _guesses(logits: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """What the draft model would say, first and second, where the answer is known so far."""
    import torch

    from shared.coupling.choice import choose
    from shared.noise import gumbel

    rows = _rows(answer)
    noised = _scaled(logits, answer)
    if answer["temperature"] > 0:
        tokens = torch.arange(logits.shape[1], dtype=torch.int32)
        noised += gumbel.noise(rows.seed.unsqueeze(1), rows.position.unsqueeze(1), tokens, torch)
    best = noised.topk(2, dim=1)
    guess = choose(logits, rows)
    assert torch.equal(guess, best.indices[:, 0]), "the choice must be the best noised logit"
    # With one token in the nucleus there is no second choice: the likeliest other one stands for it.
    alone = best.values[:, 1].isinf()
    second = torch.where(alone, logits.topk(2, dim=1).indices[:, 1], best.indices[:, 1])
    margin = torch.where(alone, torch.full_like(best.values[:, 0], 99.0), best.values[:, 0] - best.values[:, 1])
    return {
        "guess": guess.tolist(),
        "argmax": logits.argmax(dim=1).tolist(),
        "runner_up": second.tolist(),
        "margin": [round(value, 4) for value in margin.tolist()],
    }


def _overlap(draft: Any, target: Any, answer: dict[str, Any]) -> dict[str, Any]:
    import torch

    def distribution(logits: Any) -> Any:
        if answer["temperature"] == 0:
            return torch.nn.functional.one_hot(logits.argmax(dim=1), logits.shape[1]).float()
        return _scaled(logits, answer).softmax(dim=1)

    q, p = distribution(draft), distribution(target)
    return {
        "one_minus_tv": [round(value, 5) for value in torch.minimum(p, q).sum(dim=1).tolist()],
        "independent": [round(value, 5) for value in (p * q).sum(dim=1).tolist()],
    }


def _record(answers: Sequence[dict[str, Any]]) -> list[Trace]:
    from shared.coupling.choice import choose
    from shared.fingerprint import vocabulary
    from shared.models.resolve import resolve

    real = vocabulary(resolve(DRAFT))
    target, draft = _loaded(TARGET), _loaded(DRAFT)
    traces, agreed, count = [], 0, 0
    for answer in answers:
        theirs = _logits(target, answer)
        ours = _logits(draft, answer)
        ours[:, real:] = float("-inf")  # as the draft engines do: rows behind the vocabulary continue no text
        agreed += int((choose(theirs, _rows(answer)) == _tensor(answer["tokens"])).sum())
        count += len(answer["tokens"])
        traces.append(Trace(**answer, **_guesses(ours, answer), **_overlap(ours, theirs, answer)))
        print(f"  {answer['id']} at {answer['temperature']}: {len(answer['tokens'])}", file=sys.stderr, flush=True)
    print(f"transformers' float32 target chooses the verifier's token at {agreed} of {count} positions")
    return traces


def _tensor(tokens: list[int]) -> Any:
    import torch

    return torch.tensor(tokens)


def _show(traces: Sequence[Trace]) -> None:
    kinds = sorted({trace.kind for trace in traces})
    print(f"{'temperature':11} {'kind':12} {'positions':>9} coupled argmax independent  1-TV")
    for temperature in sorted({trace.temperature for trace in traces}):
        for kind in (*kinds, "all"):
            some = [each for each in traces if each.temperature == temperature and kind in (each.kind, "all")]
            seen = acceptance(some)
            print(
                f"{temperature:<11} {kind:12} {seen.positions:9} {seen.coupled:7.3f} {seen.argmax:6.3f} "
                f"{seen.independent:11.3f} {seen.one_minus_tv:5.3f}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "show"))
    parser.add_argument("--file", type=Path, default=DATA, help="where the traces are")
    parser.add_argument("--answers", type=Path, help="keep the target's answers in this file, and take them from it")
    options = parser.parse_args()
    if options.what == "record":
        if options.answers and options.answers.exists():
            answers = json.loads(options.answers.read_text())
        else:
            answers = _answers(BATCH)
            if options.answers:
                options.answers.write_text(json.dumps(answers))
        save(_record(answers), options.file)
    _show(load(options.file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
