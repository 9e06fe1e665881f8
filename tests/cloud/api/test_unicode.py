"""Text in every script streams without a broken character, cut into tokens by the real tokenizers."""

# ruff: noqa: RUF001 (the scripts are the point)

import json
import random
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest
from support.byte_level import tokens_of
from support.token_engine import EOS, Steps, TokenEngine
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from shared.models import store

pytestmark = pytest.mark.model

TEXTS = {
    "chinese": "人工智能正在改变世界，从医疗到教育，龘靐齉。",
    "japanese": "吾輩は猫である。名前はまだ無い。㍿ゐゑ",
    "korean": "모든 국민은 법 앞에 평등하다. 뷁쀍",
    "tamil": "தமிழ் மொழி உலகின் மூத்த மொழிகளில் ஒன்று; ஸ்ரீ க்ஷ",
    "devanagari": "सर्वे भवन्तु सुखिनः क्ष्म्य",
    "khmer": "ព្រះរាជាណាចក្រកម្ពុជា",
    "arabic": "بِسْمِ ٱللَّهِ ٱلرَّحْمَٰنِ",
    "joined emoji": "👩‍💻👨‍👩‍👧‍👦🏳️‍🌈🧑🏽‍🚀❤️‍🔥👍🏿🇮🇳",
    "combining marks": "e\u0301 a\u0308\u0304 Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f n\u0303o\u0302",
    "outside the first plane": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱 𓀀𓁐 𝄞",
    "line separators": "a\u2028b\u2029c\x85d\r\ne\u200be\ufefff",
}
GROUPS: dict[str, Any] = {
    "off": lambda seed: repeat(1),
    "accept-all": lambda seed: repeat(5),
    "random": lambda seed: sizes(random.Random(seed)),
}


def sizes(rng: random.Random) -> Iterator[int]:
    while True:
        yield rng.randint(1, 5)


@pytest.fixture(scope="module", params=["smollm2-135m", "qwen2.5-coder-0.5b"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    folder = store.folder_of(request.param)
    if not folder.exists():
        pytest.skip(f"{request.param} is not on this machine")
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture
def verifier() -> TokenEngine:
    return TokenEngine()


@pytest.mark.parametrize("name", TEXTS)
def test_the_played_engine_decodes_as_the_real_one(tokenizer: Tokenizer, name: str) -> None:
    """Token by token what vLLM's own decoding stream gives, with a prompt before it."""
    ids, tokens = tokens_of(tokenizer, TEXTS[name])
    stream = DecodeStream(ids=tokenizer.encode("A prompt.").ids, skip_special_tokens=True)
    real = [stream.step(tokenizer, id_) or "" for id_ in ids]
    steps = Steps([*tokens, EOS], [], 10_000)
    assert [steps.step(1).text for _ in tokens] == real
    assert "".join(real) == tokenizer.decode(ids)
    assert "" in real, "no token ends within a character: this text tests nothing"


async def test_no_character_is_broken(gateway: Any, tokenizer: Tokenizer) -> None:
    """Every chunk is whole; together they are the text, and so are the log probabilities' spellings and bytes."""
    engine: TokenEngine = gateway.verifier
    for name, text in TEXTS.items():
        ids, tokens = tokens_of(tokenizer, text)
        text = tokenizer.decode(ids)
        engine.script = lambda seed, tokens=tokens: [*tokens, EOS]  # type: ignore[misc]
        for speculation, groups in GROUPS.items():
            engine.groups = groups
            body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "logprobs": True, "seed": 1}
            whole = (await gateway.post(body)).json()["choices"][0]
            assert whole["message"]["content"] == text, (name, speculation)
            spelled = whole["logprobs"]["content"]
            assert len(spelled) == len(ids)
            assert bytes(byte for each in spelled for byte in each["bytes"]).decode() == text
            answer = await gateway.post(body | {"stream": True})
            datas = [b.removeprefix(b"data: ") for b in answer.content.split(b"\n\n") if b.startswith(b"data: {")]
            deltas = [json.loads(data.decode("utf-8", "strict"))["choices"][0]["delta"] for data in datas]
            pieces = [delta.get("content") or "" for delta in deltas]
            assert "".join(pieces) == text, (name, speculation)
            assert not any("\ufffd" in piece for piece in pieces)


async def test_a_stop_string_of_joined_characters(gateway: Any, tokenizer: Tokenizer) -> None:
    """It is found across tokens that hold parts of its characters, and nothing of it is shown."""
    engine: TokenEngine = gateway.verifier
    text = "Here: 👩‍💻 and 👨‍👩‍👧‍👦, தமிழ் done"
    _, tokens = tokens_of(tokenizer, text)
    engine.script = lambda seed: [*tokens, EOS]
    for stop in ("👨‍👩‍👧", "‍👧", "மி", "\u200d"):
        for groups in GROUPS.values():
            engine.groups = groups
            body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stop": stop, "logprobs": True}
            choice = (await gateway.post(body)).json()["choices"][0]
            assert choice["message"]["content"] == text[: text.index(stop)]
            assert "".join(each["token"] for each in choice["logprobs"]["content"]).startswith(text[: text.index(stop)])
