"""The gateway with a market: versions in its database, and what a node without an account is told."""

from pathlib import Path

import pytest

from cloud.api.app import create_gateway
from cloud.api.coordinator import Coordinator
from cloud.api.settings import GatewaySettings
from shared.ids import NodeId

SETTINGS = {
    "api_keys": ["key-of-the-test"],
    "prices": {"big": {"prompt": "0.0000002", "completion": "0.0000006"}},
    "market": {"enabled": True, "verifier_dollars_per_hour": "3.60", "payout_share": 5000},
}


def settings(tmp_path: Path, **more: object) -> GatewaySettings:
    return GatewaySettings(**{**SETTINGS, "database": str(tmp_path / "gateway.db"), **more})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEXUS_RUNTIME_DIR", str(tmp_path / "run"))


async def test_settings_become_versions_that_outlive_the_gateway(tmp_path: Path) -> None:
    """The next gateway finds them, names the same ones, and a changed price is a new one beside the old."""
    versions = []
    for completion in ("0.0000006", "0.0000006", "0.0000007"):
        prices = {"big": {"prompt": "0.0000002", "completion": completion}}
        app = create_gateway(settings(tmp_path, prices=prices))
        async with app.router.lifespan_context(app):
            keeper = app.state.market
            versions.append(keeper.price("big").version)
            assert app.state.desk.price("big").completion == int(float(completion) * 1e12 + 0.5)
            assert keeper.rates().rates.share == 5_000 and keeper.rates().rates.verifier == 10**9
            assert keeper.rates().rates.hold_days == 7
            stored = await keeper.store.book()
    assert versions[0] == versions[1] != versions[2]
    assert len(stored.prices) == 2 and len(stored.rates) == 1


async def test_a_node_without_an_account_is_told_how_to_get_one(tmp_path: Path) -> None:
    """Only where nodes are paid; without a market everybody may draft."""
    app = create_gateway(settings(tmp_path))
    async with app.router.lifespan_context(app):
        refusal = app.state.identity.nodes.refusal(NodeId("n" * 32))
        assert refusal is not None and "nexus agent pair" in refusal.message
        coordinator = app.state.backend.coordinator
        assert isinstance(coordinator, Coordinator) and coordinator.broker.market is not None
        assert (
            coordinator.broker.market.book.price("big", coordinator.broker.market.at + 60).price.completion == 600_000
        )
    app = create_gateway(settings(tmp_path, market={}))
    async with app.router.lifespan_context(app):
        assert app.state.identity.nodes.refusal(NodeId("n" * 32)) is None
        assert app.state.backend.coordinator.broker.market is None
