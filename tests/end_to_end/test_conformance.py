"""The conformance suite against the whole of Nexus, with a real model behind it."""

import asyncio

import pytest
from support.gateway import API_KEY, Gateway

from cloud.conformance import suite
from cloud.conformance.case import Result, Verdict
from cloud.conformance.target import Target

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.soak]


async def _judge(url: str) -> list[Result]:
    async with Target.open(url + "/v1", API_KEY, timeout_s=240) as target:
        return await suite.run(target, suite.chosen())


@pytest.mark.timeout(1200)
def test_the_real_thing_passes_strictly(gateway: Gateway) -> None:
    """Whatever it offers; what this small model cannot do, it says so."""
    results = asyncio.run(_judge(gateway.url))
    failed = suite.failed(results, "strict")
    assert not failed, "\n".join(f"{each.name}: {each.seen}" for each in failed)
    absent = [each.name for each in results if each.strict is Verdict.ABSENT]
    assert all(name.startswith(("tools.", "headers.rate_limits", "nexus.cost")) for name in absent), absent
