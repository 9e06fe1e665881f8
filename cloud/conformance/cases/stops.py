"""Stop strings: exact cuts, found by cutting a greedy answer at strings that it is known to hold."""

from cloud.conformance.case import Findings, GiveUp, case
from cloud.conformance.target import LENGTH, Answer, Target


async def _known(target: Target, see: Findings) -> str:
    """The greedy answer that all of these cut; the server must give it twice."""
    first = see.ok(await target.kept()).said()
    again = see.ok(await target.ask()).said()
    if first != again:
        see.strictly(False, "greedy answers differ, so an exact cut cannot be told")
        raise GiveUp
    see.need(len(first) > 20, f"the answer is too short to cut: {first!r}")
    return first


def _cut(see: Findings, answer: Answer, text: str, *stops: str) -> None:
    expected = text[: min(text.find(stop) for stop in stops if stop in text)]
    told = answer.said()
    see.must(told == expected, f"stop {stops}: {told[-30:]!r} instead of {expected[-30:]!r}")
    see.must(answer.finish() == "stop", f"stop {stops}: finish_reason {answer.finish()!r}")


@case("stop.string")
async def string(target: Target, see: Findings) -> None:
    """The answer is cut exactly before a stop string, wherever in a token it begins."""
    text = await _known(target, see)
    for place in (len(text) // 3, len(text) // 3 + 1, len(text) // 2):
        stop = text[place : place + 1]
        _cut(see, see.ok(await target.ask(stop=stop)), text, stop)
    see.note(f"cut {text[:30]!r} in three places")


@case("stop.spans_tokens")
async def spans_tokens(target: Target, see: Findings) -> None:
    """A stop string that spans tokens is found too."""
    text = await _known(target, see)
    for place in (len(text) // 4, len(text) // 3, len(text) // 2):
        stop = text[place : place + 8]
        _cut(see, see.ok(await target.ask(stop=[stop])), text, stop)


@case("stop.earliest")
async def earliest(target: Target, see: Findings) -> None:
    """Of four stop strings the one that comes first in the text cuts it."""
    text = await _known(target, see)
    third, half = len(text) // 3, len(text) // 2
    stops = [text[half : half + 6], text[third : third + 6], "@never@", "@@"]
    _cut(see, see.ok(await target.ask(stop=stops)), text, *stops)


@case("stop.at_once")
async def at_once(target: Target, see: Findings) -> None:
    """A stop string at the very beginning leaves an empty answer, streamed too."""
    text = await _known(target, see)
    answer = see.ok(await target.ask(stop=[text[:4]]))
    see.must(not answer.said() and answer.finish() == "stop", f"{answer.said()!r:.40}, {answer.finish()!r}")
    streamed, stream = await target.stream(stop=[text[:4]])
    see.ok(streamed)
    see.must(not stream.text() and stream.finish() == "stop", f"streamed {stream.text()!r:.40}, {stream.finish()!r}")
    see.stream(stream.faults())


@case("stop.absent")
async def absent(target: Target, see: Findings) -> None:
    """A stop string that never comes changes nothing."""
    text = await _known(target, see)
    answer = see.ok(await target.ask(stop=["@never@", text[-4:] + "@"]))
    see.must(answer.said() == text, f"{answer.said()[-30:]!r} instead of {text[-30:]!r}")


@case("stop.streamed")
async def streamed(target: Target, see: Findings) -> None:
    """A stream is cut at the same place, and nothing of the stop string is sent before."""
    text = await _known(target, see)
    place = len(text) // 2
    stop = text[place : place + 8]
    answer, stream = await target.stream(stop=[stop], stream_options={"include_usage": True})
    see.ok(answer)
    expected = text[: text.find(stop)]
    see.must(stream.text() == expected, f"{stream.text()[-30:]!r} instead of {expected[-30:]!r}")
    see.must(stream.finish() == "stop", f"finish_reason {stream.finish()!r}")
    see.stream(stream.faults())


@case("stop.billing")
async def billing(target: Target, see: Findings) -> None:
    """Usage and log probabilities are cut with the text, at the token that completes the stop string."""
    text = await _known(target, see)
    place = len(text) // 2
    stop = text[place : place + 3]
    answer = see.offered(await target.ask(stop=[stop], logprobs=True), "logprobs")
    used = answer.usage("completion_tokens")
    see.must(isinstance(used, int) and 0 < used < LENGTH, f"{used} tokens are counted for a part of the answer")
    entries = (answer.choice().get("logprobs") or {}).get("content") or []
    see.must(len(entries) <= used, f"{len(entries)} log probabilities for {used} tokens")
    inside = "".join(str(entry.get("token")) for entry in entries[:-1])
    see.must(len(inside) <= len(answer.said() + stop), "log probabilities of tokens behind the cut are told")
