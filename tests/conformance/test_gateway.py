"""The gateway passes every case of the suite strictly."""

from cloud.conformance import suite
from cloud.conformance.case import CASES, Verdict
from cloud.conformance.target import Target


async def test_every_case_passes_strictly(served):
    """Each is tried, and everything is offered."""
    async with Target.open(served.url, served.key) as target:
        results = await suite.run(target, suite.chosen())
    wrong = [f"{each.name} {each.strict.value}: {each.seen}" for each in results if each.strict is not Verdict.PASS]
    assert not wrong, "\n".join(wrong)
    assert {each.name for each in results} == set(CASES) and len(results) >= 75


async def test_a_slow_engine_stops_for_a_caller_who_leaves(slow):
    """The cases about leaving, with time to leave in."""
    async with Target.open(slow.url, slow.key) as target:
        results = await suite.run(target, suite.chosen(["cancel"]))
    assert [(r.strict, r.compatible) for r in results] == [(Verdict.PASS, Verdict.PASS)] * 2, results
