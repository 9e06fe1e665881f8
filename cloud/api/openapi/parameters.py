"""What each request parameter means, in one line; a parameter without its line fails a test."""

PARAMETERS: dict[str, str] = {
    "model": "Name of the model, as `GET /v1/models` lists it.",
    "messages": "The conversation so far; the content of a message is a string or a list of text parts.",
    "prompt": "One prompt: a string, token ids, or a list that holds one of either.",
    "stream": "Send the answer in pieces as it is made.",
    "stream_options": "Only with `stream`. `include_usage` adds a last chunk with `usage` and no choices; with it, "
    "`continuous_usage_stats` (not OpenAI's) tells the usage so far in each chunk.",
    "max_tokens": "Most output tokens. Text completions have 16 by default; chat as many as fit.",
    "max_completion_tokens": "The newer name of `max_tokens`; it wins when both are given.",
    "temperature": "Spread of the sampling; 0 is greedy.",
    "top_p": "Keep the likeliest tokens that have this much probability together.",
    "top_k": "Keep so many likeliest tokens; 0 and -1 keep all.",
    "min_p": "Keep tokens that have at least this share of the likeliest one's probability.",
    "repetition_penalty": "Above 1: tokens that prompt or answer hold already become less likely.",
    "presence_penalty": "Above 0: tokens that the answer holds already become less likely.",
    "frequency_penalty": "Above 0: tokens become less likely for each time that the answer holds them.",
    "logit_bias": "Token ids of the model with what is added to their logits, -100 to 100.",
    "stop": "Up to four strings; the answer ends exactly before the first of them.",
    "seed": "The same seed gives the same tokens, whoever drafts; choice i of `n` uses `seed` + i.",
    "ignore_eos": "Go on to the output limit whatever the model says; for measurements.",
    "n": "How many choices; the prompt counts once.",
    "logprobs": "Log probabilities of the output tokens, always the target model's: `true` (chat), or how many "
    "alternatives (text completions).",
    "top_logprobs": "Only with `logprobs`: how many alternatives for each token.",
    "tools": "Functions that the model may call, where the model can.",
    "tool_choice": "Whether it may, must or must not call one, or which one it must.",
    "parallel_tool_calls": "Whether it may call several at once.",
    "response_format": "Any text, one JSON object, or JSON by a schema; a grammar sees to it.",
    "reasoning_effort": "How much a reasoning model thinks first, where the model can be told.",
    "user": "A name for the end user; accepted, not used.",
    "metadata": "Up to 16 pairs of strings; accepted, not kept.",
    "store": "`false` is accepted; Nexus keeps no answers.",
    "safety_identifier": "Accepted, not used.",
    "prompt_cache_key": "Accepted, not used: equal beginnings of prompts are found without it.",
    "nexus": "What only Nexus has.",
    "nexus.privacy": "`verifier_only`: no draft node sees the prompt. `any`: nodes may draft.",
    "nexus.nodes": "Whether nodes may draft; without it as `privacy` says.",
    "nexus.max_draft_tokens": "Longest draft that one verification takes; 0: no drafts.",
    "nexus.max_wait_ms": "Longest time that a step may wait for a draft, milliseconds.",
    "nexus.max_price": "Most that the answer may cost, dollars as text; a request that could cost more is refused.",
    "nexus.trace": "Add the origin of every token to the answer.",
}

EXTENSIONS = frozenset({"top_k", "min_p", "repetition_penalty", "ignore_eos", "nexus"})
"""Not OpenAI's: the first four are vLLM's and others', the last is ours."""
STRUCTURE = frozenset({"model", "messages", "prompt"})
"""Fields that are the request itself, not parameters of it."""
UNLISTED = frozenset({"user", "metadata", "store", "nexus", "safety_identifier", "prompt_cache_key"})
"""Accepted on every model, but not among its `supported_parameters`: they do not shape the answer."""
