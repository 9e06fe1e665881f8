"""Instructor: objects of pydantic classes, whole, partial and as lists, by schema and by tools; retries and errors."""

from typing import Literal

import instructor
import openai
from checks import KEY, MODEL, QUESTION, URL, check, counts, fail_next, main, raises, served
from instructor.core.exceptions import InstructorRetryException
from pydantic import BaseModel, Field, field_validator


class City(BaseModel):
    """What is asked for."""

    name: Literal["Paris", "Rome"]
    capital: bool
    districts: list[int] = Field(max_length=3)


def client(mode, **options):
    """The official client, patched."""
    return instructor.from_openai(
        openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=300, **options), mode=mode
    )


GREEDY = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 300}
BY_SCHEMA = instructor.Mode.JSON_SCHEMA


@check
def by_schema():
    """An object by a JSON schema, with the raw completion"""
    city, raw = client(BY_SCHEMA).create_with_completion(**GREEDY, response_model=City)
    assert isinstance(city, City) and raw.usage.completion_tokens > 0


@check
def partial():
    """Partial objects while the answer streams; the last one is whole"""
    parts = list(client(BY_SCHEMA).create_partial(**GREEDY, response_model=City))
    assert len(parts) > 1 and parts[-1].name in ("Paris", "Rome") and parts[-1].capital is not None


@check
async def asynchronous():
    """The asynchronous client"""
    async with openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0) as plain:
        city = await instructor.from_openai(plain, mode=BY_SCHEMA).create(**GREEDY, response_model=City)
    assert isinstance(city, City)


@check
def by_tools():
    """An object by a tool call"""
    served("tools")
    city, raw = client(instructor.Mode.TOOLS).create_with_completion(**GREEDY, response_model=City)
    assert isinstance(city, City) and raw.choices[0].message.tool_calls[0].function.name == "City"


@check
def asks_again():
    """An answer that the class refuses is asked for again, with the reason"""
    seen = []

    class Picky(City):
        @field_validator("name")
        @classmethod
        def _never_at_first(cls, value):
            seen.append(value)
            if len(seen) == 1:
                raise ValueError("not this one")
            return value

    before = counts()["generations"]
    assert isinstance(client(BY_SCHEMA).create(**GREEDY, response_model=Picky, max_retries=2), Picky)
    assert counts()["generations"] - before == 2 and len(seen) >= 2


@check
def errors():
    """Errors carry the client's own"""
    error = raises(Exception, client(BY_SCHEMA).create, **{**GREEDY, "temperature": 3}, response_model=City)
    assert "temperature" in str(error)
    assert isinstance(error, (openai.BadRequestError, InstructorRetryException))


@check
def retries():
    """503 is retried by the client below"""
    before = counts()["generations"]
    fail_next("503")
    plain = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=2)
    assert isinstance(
        instructor.from_openai(plain, mode=BY_SCHEMA).create(**GREEDY, seed=906, response_model=City), City
    )
    assert counts()["generations"] - before == 2


main()
