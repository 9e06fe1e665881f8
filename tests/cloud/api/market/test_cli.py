"""`nexus market`, on a database and for a simulated day."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cloud.api.market.cli import app
from shared.errors import NexusError


@pytest.fixture
def nexus(tmp_path: Path) -> Any:
    """Run `nexus market` on a database of its own; gives what it printed."""

    def run(*words: str) -> str:
        needs = [] if words[0] == "simulate" else ["--database", str(tmp_path / "market.db")]
        result = CliRunner().invoke(app, [*words, *needs], catch_exceptions=True)
        if result.exception is not None:
            raise result.exception
        return result.output

    return run


def test_prices_and_rates_get_new_versions(nexus: Any) -> None:
    """What is in force is marked, what was before stays listed."""
    nexus("set-price", "big", "--prompt", "0.0000002", "--completion", "0.0000006", "--version", "one")
    nexus("set-price", "big", "--prompt", "0.0000002", "--completion", "0.0000005", "--version", "two")
    nexus("rates", "--share", "5500", "--verifier", "3.60", "--version", "r")
    listed = json.loads(nexus("prices", "--json"))
    assert [(row["version"], row["in_force"], row["completion"]) for row in listed["prices"]] == [
        ("one", False, "0.0000006"),
        ("two", True, "0.0000005"),
    ]
    [rate] = listed["rates"]
    assert (rate["version"], rate["share"], rate["verifier_per_hour"], rate["in_force"]) == ("r", 5500, "3.6", True)
    assert json.loads(nexus("rates"))["hold_days"] == 7
    assert "two" in nexus("prices") and "Nothing was traded" in nexus("spot", "big")


@pytest.mark.parametrize(
    "words",
    [
        ("set-price", "big", "--prompt", "x", "--completion", "1"),
        ("set-price", "big", "--prompt", "1", "--completion", "1", "--version", "a b"),
        ("rates", "--share", "10001"),
        ("rates", "--tariff", "much"),
    ],
)
def test_what_cannot_be_is_refused_in_words(nexus: Any, words: tuple[str, ...]) -> None:
    """And nothing is written."""
    with pytest.raises(NexusError):
        nexus(*words)
    assert "There is no price yet" in nexus("prices")


def test_a_version_is_not_given_twice(nexus: Any) -> None:
    """Its name stands for what it said."""
    nexus("set-price", "big", "--prompt", "1", "--completion", "1", "--version", "one")
    with pytest.raises(NexusError, match="never changed"):
        nexus("set-price", "big", "--prompt", "2", "--completion", "1", "--version", "one")


def test_a_simulated_day_is_the_same_for_the_same_seed(nexus: Any) -> None:
    """A line an hour; owners keep something, nobody is paid above the value."""
    day = ("simulate", "--json", "--minutes", "180", "--nodes", "40", "--demand", "200")
    hours = json.loads(nexus(*day))
    assert hours == json.loads(nexus(*day)) != json.loads(nexus(*day, "--seed", "1"))
    assert [hour["hour"] for hour in hours] == [0, 1, 2]
    assert all(0 < hour["price"] <= hour["value"] and 0 < hour["profit"] < hour["paid"] for hour in hours)
    assert all(hour["served"] <= hour["demand"] for hour in hours)


def test_full_verifiers_pay_nothing(nexus: Any) -> None:
    """The value falls to nothing where each step is full of plain tokens."""
    hours = json.loads(nexus("simulate", "--json", "--minutes", "1", "--demand", "30000", "--verifiers", "1"))
    assert hours[0]["paid"] == hours[0]["tokens"] == 0


def test_the_table_says_what_it_comes_to(nexus: Any) -> None:
    """For people."""
    out = nexus("simulate", "--minutes", "2", "--nodes", "5", "--demand", "20")
    assert "price $/M" in out and "after electricity" in out
