"""A chat request as it is handed to a generation, for tests of what comes after."""

from cloud.api.broker.policy import StreamPolicy
from cloud.api.openai.job import Job, ToolRules

CHAT_JOB = Job(
    path="/v1/chat/completions",
    model="m",
    payload={},
    engine_arguments={},
    biased=(),
    n=1,
    seed=1,
    stops=(),
    stream=False,
    include_usage=False,
    logprobs=False,
    trace=False,
    policy=StreamPolicy(),
    shaped=False,
    tools=ToolRules(),
)
