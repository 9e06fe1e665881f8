"""The models list, and what the headers of every answer say."""

import re
from typing import Any

from cloud.conformance.case import Findings, NotOffered, case
from cloud.conformance.target import Answer, Target

LABEL = "label-1.of:the/caller"
DURATION = re.compile(r"(\d+(\.\d+)?(ms|[dhms]))+")
Json = dict[str, Any]


def cards(answer: Answer) -> list[Json]:
    """The entries of a models list."""
    found = answer.json.get("data") if isinstance(answer.json, dict) else None
    return [card for card in found if isinstance(card, dict)] if isinstance(found, list) else []


@case("models.list")
async def list_models(target: Target, see: Findings) -> None:
    """`GET /models` lists the model that answers."""
    answer = see.ok(await target.kept_get("/models"))
    see.schema("ModelList", answer.json)
    names = [card.get("id") for card in cards(answer)]
    see.must(target.model in names, f"{target.model} is not listed")
    see.note(", ".join(map(str, names)))


@case("models.retrieve")
async def retrieve(target: Target, see: Findings) -> None:
    """`GET /models/{id}` gives the same object as the list."""
    answer = see.ok(await target.get(f"/models/{target.model}"))
    see.schema("Model", answer.json)
    listed = (await target.kept_get("/models")).json
    see.strictly(answer.json in listed.get("data", []), "it differs from the entry in the list")


@case("models.unknown")
async def unknown(target: Target, see: Findings) -> None:
    """A model that does not exist is 404."""
    see.error(await target.get("/models/no-such-model"), 404, code="model_not_found")


@case("models.details")
async def details(target: Target, see: Findings) -> None:
    """What a list tells beyond OpenAI's fields: prices as strings, context and output lengths, parameters."""
    listed = cards(see.ok(await target.kept_get("/models")))
    card = next((card for card in listed if card.get("id") == target.model), None)
    see.need(card is not None, f"{target.model} is not listed")
    assert card is not None
    names = ("pricing", "context_length", "max_output_length", "supported_parameters")
    told = [name for name in names if card.get(name) is not None]
    if not told:
        raise NotOffered("the list tells none of these")
    missing = [name for name in names if name not in told]
    see.strictly(not missing, f"{', '.join(missing)} missing")
    parameters = card.get("supported_parameters") or []
    see.strictly({"temperature", "max_tokens", "stop"} <= set(parameters), "supported_parameters lack common ones")
    if pricing := card.get("pricing"):
        see.strictly({"prompt", "completion"} <= set(pricing), "pricing lacks prompt or completion")
        see.strictly(all(isinstance(price, str) for price in pricing.values()), "a price is no string")
    see.note(", ".join(told))


@case("headers.request_id")
async def request_id(target: Target, see: Findings) -> None:
    """Every answer, an error too, has its own `x-request-id`."""
    answers = [await target.ask(max_tokens=1), await target.ask(max_tokens=1), await target.ask(temperature=-1)]
    answers.append(await target.get("/no/such/thing"))
    ids = [answer.headers.get("x-request-id") for answer in answers]
    see.strictly(all(ids), "an answer has no x-request-id")
    see.strictly(len(set(ids)) == len(ids), "two answers have the same x-request-id")
    see.note(str(ids[0]))


@case("headers.client_request_id")
async def client_request_id(target: Target, see: Findings) -> None:
    """A caller's `x-client-request-id` comes back when it is safe, and only then."""
    for label in (LABEL, "x" * 128):
        answer = see.ok(await target.ask(max_tokens=1, headers={"x-client-request-id": label}))
        see.strictly(answer.headers.get("x-client-request-id") == label, "the caller's id does not come back")
    for label in ("x" * 129, "a b", "<script>"):
        answer = see.ok(await target.ask(max_tokens=1, headers={"x-client-request-id": label}))
        see.strictly(answer.headers.get("x-client-request-id") != label, f"an unsafe id comes back: {label[:20]!r}")


@case("headers.processing_ms")
async def processing_ms(target: Target, see: Findings) -> None:
    """`openai-processing-ms` is a whole number of milliseconds."""
    value = see.ok(await target.kept()).headers.get("openai-processing-ms", "")
    see.strictly(value.isdigit(), f"openai-processing-ms is {value!r}")
    see.note(f"{value} ms")


@case("headers.rate_limits")
async def rate_limits(target: Target, see: Findings) -> None:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`: numbers, and a duration until the reset."""
    headers = see.ok(await target.kept()).headers
    found = 0
    for unit in ("requests", "tokens"):
        values = {part: headers.get(f"x-ratelimit-{part}-{unit}") for part in ("limit", "remaining", "reset")}
        if not any(values.values()):
            continue
        found += 1
        limit, remaining, reset = (values[part] or "" for part in ("limit", "remaining", "reset"))
        numbers = limit.isdigit() and remaining.isdigit()
        if see.strictly(numbers, f"{unit}: limit {limit!r}, remaining {remaining!r}"):
            see.strictly(int(remaining) <= int(limit), f"{unit}: {remaining} of {limit} remain")
        see.strictly(DURATION.fullmatch(reset), f"{unit}: reset {reset!r} is no duration such as 6m0s")
    if not found:
        raise NotOffered("no x-ratelimit headers: the key has no limits, or the server tells none")


@case("headers.stream")
async def stream_headers(target: Target, see: Findings) -> None:
    """A stream is `text/event-stream`, not cached, and not held back by a proxy."""
    answer, _ = await target.stream()
    see.ok(answer)
    see.must(answer.type == "text/event-stream", f"content type {answer.type!r}")
    see.strictly("no-cache" in answer.headers.get("cache-control", ""), "no `Cache-Control: no-cache`")
    see.strictly(answer.headers.get("x-accel-buffering") == "no", "no `X-Accel-Buffering: no`")
