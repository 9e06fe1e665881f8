"""The engine that gateway tests play is vLLM's own output processing, step for step, on a real tokenizer."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.byte_level import tokens_of
from support.token_engine import EOS, Output, Steps
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.utils import check_stop
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import RequestStatus

pytestmark = pytest.mark.model

TEXT = "The cat sat. Then தமிழ் 👩‍💻 and e\u0301 came; the cat sat on 東京."
STOPS: list[list[str]] = [
    [],
    ["."],
    ["cat sat on"],
    ["ழ்"],
    ["👩‍"],
    ["t. T", " 👩", "never", "sat on"],
    ["\u0301", "e\u0301"],
]


class RealSteps:
    """vLLM's scheduler rule, detokenizer, log probabilities and collector, driven with given tokens."""

    def __init__(self, tokenizer: Any, ids: list[int], eos: int, stops: list[str], limit: int) -> None:
        self.ids, self.at = [*ids, eos], 0
        self.params = SamplingParams(
            max_tokens=limit, stop=stops, logprobs=0, output_kind=RequestOutputKind.DELTA, temperature=0
        )
        self.params._eos_token_id = eos
        self.request = SimpleNamespace(
            sampling_params=self.params, pooling_params=None, output_token_ids=[], max_tokens=limit, status=None
        )
        self.queue = RequestOutputCollector(RequestOutputKind.DELTA, "r")
        self.processor = OutputProcessor(tokenizer, log_stats=False)
        prompt = tokenizer.encode("A prompt.")
        self.processor.add_request(
            EngineCoreRequest(
                request_id="r",
                external_req_id="r",
                prompt_token_ids=prompt,
                mm_features=None,
                sampling_params=self.params,
                pooling_params=None,
                arrival_time=0.0,
                lora_request=None,
                cache_salt=None,
                data_parallel_rank=None,
            ),
            "A prompt.",
            queue=self.queue,
        )

    def step(self, size: int) -> Output:
        new: list[int] = []
        finish = None
        for id_ in self.ids[self.at : self.at + size]:
            new.append(id_)
            self.request.output_token_ids.append(id_)
            self.request.num_output_tokens = self.request.num_tokens = len(self.request.output_token_ids)
            if check_stop(self.request, 1 << 20):
                stopped = self.request.status == RequestStatus.FINISHED_STOPPED
                finish = FinishReason.STOP if stopped else FinishReason.LENGTH
                break
        logprobs = LogprobsLists(
            np.array([[id_] for id_ in new]), np.zeros((len(new), 1), np.float32), np.zeros(len(new), np.int64), None
        )
        self.processor.process_outputs(
            [EngineCoreOutput(request_id="r", new_token_ids=new, new_logprobs=logprobs, finish_reason=finish)]
        )
        [output] = self.queue.get_nowait().outputs  # type: ignore[union-attr]
        places = tuple(range(self.at, self.at + len(output.token_ids)))
        self.at += len(output.token_ids)
        spellings = tuple(
            entry[id_].decoded_token for id_, entry in zip(output.token_ids, output.logprobs, strict=True)
        )
        return Output(output.text, places, spellings, output.finish_reason, output.stop_reason)


@pytest.mark.parametrize("stops", STOPS, ids=repr)
def test_step_for_step(small_model: Path, stops: list[str]) -> None:
    """Text, tokens, spellings and ends of every step, for steps of every size and every limit."""
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    ids, tokens = tokens_of(Tokenizer.from_file(str(small_model / "tokenizer.json")), TEXT)
    rng = random.Random(1)
    for limit in (1, 4, 5, 9, 1000):
        for size in (1, 5, None):
            real = RealSteps(tokenizer, ids, tokenizer.eos_token_id, stops, limit)
            played = Steps([*tokens, EOS], stops, limit)
            while not played.finish:
                step = size or rng.randint(1, 5)
                want, got = real.step(step), played.step(step)
                assert comparable(got) == comparable(want), (limit, size)


def comparable(output: Output) -> tuple[Any, ...]:
    """The token that ends a text is spelled otherwise."""
    spellings = output.spellings
    if output.finish == "stop" and output.stop_reason is None:
        spellings = spellings[:-1]
    return output.text, output.ids, spellings, output.finish, output.stop_reason
