"""Figures from outside: prices, cards, power and tariffs, each with where it comes from, and what is assumed.

Facts only; looked up in November 2026. `Assumed` marks what nobody has published and we had to choose.
"""

from dataclasses import dataclass

GB = 1e9


@dataclass(frozen=True, slots=True)
class Source:
    """One figure, and where to check it."""

    what: str
    figure: str
    where: str
    """An address; or «assumed», or a file of ours."""


@dataclass(frozen=True, slots=True)
class Card:
    """A consumer GPU as a draft worker."""

    name: str
    share: float
    """Of all nodes."""
    bandwidth: float
    """Bytes per second of its memory."""
    watts: float
    """The maker's board power."""
    streams: int
    """That it drafts for at once."""


CARDS = (
    Card("RTX 3060", 0.35, 360 * GB, 170, 8),
    Card("RTX 4070", 0.30, 504 * GB, 200, 12),
    Card("RTX 4090", 0.25, 1008 * GB, 450, 16),
    Card("RTX 5090", 0.10, 1792 * GB, 575, 16),
)

DRAFT_BYTES = 0.99 * GB
"""Weights of a 0.5B model in bfloat16 (494 million parameters)."""
ENGINE_S = 1 / 311.55 - DRAFT_BYTES / (2039 * GB)
"""Of a step of the draft engine, what is not reading weights: vLLM's 311.55 tokens/s of Qwen2.5-0.5B on an A100."""
ROW_S = (16 / 4428.90 - 1 / 371.74) / 15 * (0.494 / 1.236)
"""For each further stream of a step, on an RTX 3090: llama.cpp's 1B model, 1 row and 16, scaled by parameters."""
PROMPT_RATE = 17751.37 * (1.236 / 0.494)
"""Prompt tokens per second on an RTX 3090, from llama.cpp's 1B model, scaled by parameters."""
RTX_3090 = 936 * GB
"""Memory bandwidth; what was measured on that card is scaled to others by it."""

LOAD = 0.6
"""Part of its board power that a card draws while it drafts."""
REST_W = 50.0
"""The rest of the PC, which is counted in full as if it ran for nothing else."""
PSU = 0.9
"""Efficiency of its power supply."""
WAITING_W = 20.0
"""More than an idle PC's, while a node waits with its model loaded."""

GPU_HOUR = 2.69
"""Dollars for an H100 SXM; a verifier has two."""
HOURS = {"table": GPU_HOUR, "split": GPU_HOUR, "h200": 3.59}
GPUS = 2
TOKEN_PRICE = 0.40
"""Dollars that the customer pays for a million output tokens of a 70B model."""
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 2000
"""Of a request, as in the published latencies that the step costs come from."""
MOST_STREAMS = 128
"""On one verifier: FP8 weights of 70 GB leave 160 GB × 0.9 - 70 GB for keys and values of 0.33 MB a token (80 layers,
8 heads of 128, two bytes), which is 2,500 tokens for each of some 90, or with one byte each of 180."""

TARIFFS = (
    (0.124, 0.10),
    (0.150, 0.25),
    (0.187, 0.30),
    (0.225, 0.15),
    (0.310, 0.12),
    (0.415, 0.08),
)
"""Dollars per kWh, and the part of nodes that pays them: the cheapest state, a cheap and the average one, New Jersey,
Massachusetts, and Germany at 1.08 dollars for a euro."""

NEAR_MS, NEAR_SPREAD = 14.0, 0.45
"""Median round trip of a node in the verifier's region, and the spread of its logarithm: 80 % within 20 ms."""
WIFI_MS, WIFI_SHARE = 4.0, 0.5
FAR_MS, FAR_SHARE = 45.0, 0.25
"""More for a node in another region, half a continent away."""

ONLINE = (0.45,) * 6 + (0.42, 0.40, 0.42) + (0.50,) * 8 + (0.40, 0.32, 0.28, 0.28, 0.30, 0.36, 0.42)
"""Part of the nodes that is on and free, by hour: least in the evening, when owners play."""
SESSION_MIN = 150.0
"""Mean time from a node's coming to its owner's taking it back."""
REASSIGN_S = 20.0
"""That a stream goes without drafts when its node leaves: until it is noticed, and another has read the text."""
DEMAND = (
    0.40, 0.35, 0.31, 0.30, 0.30, 0.33, 0.42, 0.58, 0.80, 0.94, 1.00, 1.00,
    0.97, 0.98, 0.95, 0.88, 0.80, 0.72, 0.68, 0.70, 0.72, 0.66, 0.56, 0.47,
)  # fmt: skip
"""By hour, of the peak: highest in office hours, a second rise after dinner, lowest before dawn."""
HEADROOM = 1.10
"""Verifiers are rented for a tenth more than an hour's highest demand; for an hour at a time."""
COLOCATED_PART = 0.125
"""A step of the draft model on the verifier's own GPUs: an eighth of the target's (shared/MARKET.md); the published
single-stream speed on an A100, 3.2 ms, is no faster."""
COLOCATED_ROW_S = 10e-6
"""For each further stream."""

SOURCES = (
    Source("H100 SXM by the hour", "$2.69", "https://deploybase.ai/articles/runpod-gpu-pricing (RunPod, March 2026)"),
    Source("H200 by the hour", "$3.59", "the same page"),
    Source(
        "H100 by the hour, range",
        "$1.99 to $5.00; neoclouds $2.49 to 2.85",
        "https://www.mercatus-ai.com/blog/cloud-gpu-pricing (May 2026), "
        "https://digiterialabs.com/ai/insights/cloud-gpu-pricing-q1-2026",
    ),
    Source(
        "RTX 4090 by the hour",
        "$0.34 (RunPod), $0.31 to 0.45 (Vast.ai)",
        "https://deploybase.ai/articles/rtx-4090-cloud, https://fairlane.systems/en/wissen/tool-vast-ai (May 2026)",
    ),
    Source(
        "70B output tokens, a million",
        "$0.30 to 0.40 (DeepInfra), $0.32 (OpenRouter's lowest)",
        "https://deepinfra.com/meta-llama/Llama-3.3-70B-Instruct-Turbo/api, "
        "https://aicoach.pw/marketplace/llm/llama-3-3-70b-instruct",
    ),
    Source(
        "70B FP8 on two H100: latencies",
        "19 ms alone; 32 to 39 ms at 100 requests; 125 ms at 150 with 5,000-token prompts",
        "https://docs.nvidia.com/nim/benchmarking/llm/latest/performance-tables/llm-1_5-llama3_3-70b.html and "
        "…/llm/1.0.0/performance",
    ),
    Source(
        "Qwen2.5-0.5B on an A100",
        "311.55 tokens/s with vLLM, one stream",
        "https://github.com/QwenLM/Qwen2.5/blob/main/docs/source/benchmark/speed_benchmark.rst",
    ),
    Source(
        "1B model on an RTX 3090, by rows of a step",
        "372 tokens/s for 1, 4,429 for 16, 17,751 for 512",
        "https://github.com/ggml-org/llama.cpp/pull/24216",
    ),
    Source(
        "0.8B model on an RTX 5090 (check)",
        "2.5 ms a token, one stream",
        "https://poorpaul.dev/articles/qwen35-08b-architecture-showdown",
    ),
    Source(
        "RTX 3060, 4070, 4090, 5090: power",
        "170, 200, 450, 575 W",
        "https://cpu-gpu.alldbin.com/graphics-card-comparison/GeForce-RTX-4090-and-GeForce-RTX-3060-12-GB-GA104-"
        "comparison.html, https://www.club386.com/complete-geforce-rtx-4070-specifications-reveal-a-frugal-599-gpu/, "
        "https://pocketmags.com/linux-format-magazine/may-2025/articles/nvidia-geforce-rtx-5090",
    ),
    Source("the same: memory", "360, 504, 1,008, 1,792 GB/s", "as above"),
    Source(
        "power while decoding, of board power",
        "37 to 52 % (4070 Ti Super, 8B models); at 43 % a 3090 loses 14 % of its speed",
        "https://www.openclawradar.com/article/gpu-power-consumption-deviates-token-predictor-theory-small-llms, "
        "https://llmgarage.ai/power-limit-tokens-per-second-benchmark",
    ),
    Source(
        "an idle gaming PC",
        "60 W",
        "https://eathealthy365.com/a-gamer-s-guide-to-pc-power-consumption-in-2025",
    ),
    Source(
        "electricity, US homes",
        "18.05 to 18.72 ¢/kWh; Louisiana 12.4, Massachusetts 31, New Jersey 22.5",
        "https://www.electricchoice.com/electricity-prices-by-state (EIA, January and February 2026), "
        "https://www.energypricestoday.com/data/sources/electricity-prices.json (EIA, April 2026)",
    ),
    Source(
        "electricity, EU homes",
        "€0.2872/kWh; Germany 0.3835",
        "Eurostat, first half of 2025: https://www.eubusiness.com/energy/germany-electricity-prices-highest-in-eu/",
    ),
    Source(
        "round trip to the nearest cloud region",
        "under 20 ms for 80 % of probes where there is a region in the country",
        "RIPE Atlas, by https://pulse.internetsociety.org/blog/how-cloud-edge-infrastructure-improves-network-"
        "performance-in-europe",
    ),
    Source(
        "shape of a day's demand",
        "highest from 8 to 14 Eastern, again after dinner, lowest from midnight to 6",
        "https://tianpan.co/blog/2026-05-09-diurnal-latency-ai-feature-slowest-9am-et; its depth is assumed",
    ),
    Source("acceptance by position", "0.80", "bench/data/traces.jsonl, recorded: 1.5B target, 0.5B draft model"),
    Source(
        "acceptance of a far smaller draft model",
        "0.4 to 0.8 by kind of text",
        "https://gigagpu.com/vllm-speculative-decoding-setup/, "
        "https://devquasar.com/uncategorized/speculative-decoding-tradeoffs-gpu-with-large-models-llama-70b-8b/",
    ),
    Source("nodes: cards, hours, sessions, Wi-Fi, other regions", "see bench/economics/inputs.py", "assumed"),
)
