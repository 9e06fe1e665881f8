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
from cloud.conformance.cases import callers
from cloud.conformance.target import Target

DEFECTS = [*ERRORS, *ANSWERS, *STREAMS, *SAMPLING]


def test_every_case_can_fail() -> None:
    """Each has a server that breaks its rule, here or below."""
    assert {name for name, *_ in DEFECTS} | {"cancel.streamed", "cancel.whole", "callers.idempotency"} == set(CASES)


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
