"""A suite that cannot fail proves nothing: every case finds servers that break its rule, at the right level."""

import pytest
from support import played_vllm
from support.broken.answers import ANSWERS
from support.broken.errors import ERRORS
from support.broken.kinds import COMPATIBLE
from support.broken.sampling import SAMPLING
from support.broken.streams import STREAMS
from support.defects import Defect

from cloud.conformance import suite
from cloud.conformance.case import CASES, Verdict
from cloud.conformance.cases import callers, streams
from cloud.conformance.target import Target

DEFECTS = [*ERRORS, *ANSWERS, *STREAMS, *SAMPLING]


def test_every_case_can_fail() -> None:
    """Each has a server that breaks its rule, here or below."""
    elsewhere = {"cancel.streamed", "cancel.whole", "stream.live"}
    assert {name for name, *_ in DEFECTS} | elsewhere == set(CASES)


@pytest.mark.parametrize(
    ("name", "level", "defect"),
    [pytest.param(name, level, defect, id=f"{name}: {what}") for name, level, what, defect in DEFECTS],
)
async def test_a_broken_server_fails_its_case(served, name, level, defect):
    """A finding at level `compatible` fails both verdicts, one at level `strict` only the strict one."""
    served.spoiled.defect = defect
    async with Target.open(served.url, served.key, played_vllm.MODEL) as target:
        result = await suite.run_case(CASES[name], target)
    assert result.strict is Verdict.FAIL, result
    assert (result.compatible is Verdict.FAIL) == (level == COMPATIBLE), result


@pytest.mark.parametrize("name", ["cancel.streamed", "cancel.whole"])
async def test_a_server_that_works_on_for_nobody_fails(slow, monkeypatch, name):
    """It does not notice that the caller left."""
    monkeypatch.setattr(callers, "STOPS_WITHIN_S", 0.5)
    slow.spoiled.defect = Defect(deaf=True)
    async with Target.open(slow.url, slow.key) as target:
        result = await suite.run_case(CASES[name], target)
    assert (result.strict, result.compatible) == (Verdict.FAIL, Verdict.FAIL), result


async def test_a_server_that_sends_all_at_the_end_fails(slow, monkeypatch):
    """The answer is whole and right, but nobody could watch it being made."""
    monkeypatch.setattr(streams, "LIVE_S", 0.1)
    slow.spoiled.defect = Defect(stream=lambda ask, found: found)
    async with Target.open(slow.url, slow.key) as target:
        result = await suite.run_case(CASES["stream.live"], target)
    assert (result.strict, result.compatible) == (Verdict.FAIL, Verdict.PASS), result


JSON, EVENTS = {"content-type": "application/json"}, {"content-type": "text/event-stream"}
HOPELESS = {
    "HTML": (200, {"content-type": "text/html"}, b"<html>hello</html>"),
    "an empty object": (200, JSON, b"{}"),
    "a list": (200, JSON, b'[[], 1, "x"]'),
    "nulls": (200, JSON, b'{"choices": [null], "usage": null}'),
    "numbers": (200, JSON, b'{"choices": [{"index": 0, "message": 1}], "usage": 7}'),
    "500": (500, {"content-type": "text/plain"}, b"oops"),
    "404": (404, JSON, b'{"error": "no"}'),
    "events of numbers": (200, EVENTS, b"data: 1\n\ndata: {}\n\n"),
    "events of no text": (200, EVENTS, b"data: \xff\xfe\n\n"),
    "chunks of numbers": (200, EVENTS, b'data: {"choices": 1}\n\ndata: {"choices": [{"index": 0, "delta": 1}]}\n\n'),
}
MUST_FAIL = ("chat.schema", "stream.done", "stream.role", "stop.string", "choices.count", "models.list")


@pytest.mark.parametrize("instead", HOPELESS.values(), ids=list(HOPELESS))
async def test_a_hopeless_server_is_judged_to_the_end(served, instead):
    """Whatever it answers to everything, every case gives a result, and the cases about answers fail."""
    served.spoiled.defect = Defect(instead=instead)
    async with Target.open(served.url, served.key, played_vllm.MODEL) as target:
        results = await suite.run(target, suite.chosen())
    assert [result.name for result in results] == [case.name for case in suite.chosen()]
    verdicts = {result.name: result.strict for result in results}
    assert [name for name in MUST_FAIL if verdicts[name] is not Verdict.FAIL] == []
    passed = [name for name, verdict in verdicts.items() if verdict is Verdict.PASS]
    assert len(passed) < 8, passed


async def test_a_server_that_is_gone_is_judged_to_the_end(served):
    """No connection is a finding, not a crash."""
    async with Target.open("http://127.0.0.1:9/v1", served.key, played_vllm.MODEL) as target:
        results = await suite.run(target, suite.chosen())
    passed = [result.name for result in results if result.strict is Verdict.PASS]
    assert len(results) == len(CASES) and passed == []
