"""instructor: pydantic models out of replies, in each of its modes.

Runs in: an environment with `instructor`.
"""

from __future__ import annotations

from typing import Any, Literal

import instructor
import openai
from proofs import check, target
from pydantic import BaseModel, Field, field_validator

raw = openai.OpenAI(base_url=target.url, api_key=target.key, max_retries=0)
ASK: Any = [{"role": "user", "content": "Paris is the capital of France. Extract the city."}]
COMMON: Any = {
    "model": target.model,
    "messages": ASK,
    "temperature": 0,
    "max_tokens": 200,
    "max_retries": 1,
}


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "London"]
    is_capital: bool
    million_people: int = Field(ge=0, le=40)


def extract(mode: instructor.Mode) -> City:
    return instructor.from_openai(raw, mode=mode).create(response_model=City, **COMMON)


@check("mode JSON_SCHEMA: an instance, and the raw reply beside it")
def json_schema() -> None:
    assert isinstance(extract(instructor.Mode.JSON_SCHEMA), City)
    client = instructor.from_openai(raw, mode=instructor.Mode.JSON_SCHEMA)
    city, reply = client.create_with_completion(response_model=City, **COMMON)
    assert isinstance(city, City)
    assert reply.usage.total_tokens > 0


@check("create_partial: growing instances from a stream; create_iterable")
def partial() -> None:
    client = instructor.from_openai(raw, mode=instructor.Mode.JSON_SCHEMA)
    steps = list(client.create_partial(response_model=City, **COMMON))
    assert len(steps) > 1
    assert steps[-1].name in {"Paris", "London"}
    assert steps[-1].million_people is not None
    fields = COMMON | {"max_tokens": 300}
    cities = instructor.from_openai(raw, mode=instructor.Mode.JSON_SCHEMA).create_iterable(
        response_model=Pair, **fields
    )
    assert all(isinstance(one, Pair) for one in cities)


class Pair(BaseModel):
    """Two letters."""

    left: Literal["a", "b"]
    right: Literal["a", "b"]


@check("a validator that refuses: the model is asked again with the message")
def retried() -> None:
    asked: list[str] = []

    class Picky(BaseModel):
        name: Literal["Paris", "London"]

        @field_validator("name")
        @classmethod
        def second_time(cls, value: str) -> str:
            asked.append(value)
            if len(asked) == 1:
                raise ValueError("look again")
            return value

    client = instructor.from_openai(raw, mode=instructor.Mode.JSON_SCHEMA)
    fields = COMMON | {"max_retries": 2}
    assert isinstance(client.create(response_model=Picky, **fields), Picky)
    assert len(asked) >= 2


@check("async client")
async def asynchronous() -> None:
    async with openai.AsyncOpenAI(base_url=target.url, api_key=target.key, max_retries=0) as asyncs:
        client = instructor.from_openai(asyncs, mode=instructor.Mode.JSON_SCHEMA)
        assert isinstance(await client.create(response_model=City, **COMMON), City)


@check("mode TOOLS: the model's schema as a tool that must be called", "small", "coder")
def tools() -> None:
    assert isinstance(extract(instructor.Mode.TOOLS), City)


@check("mode TOOLS, streamed: create_partial", "small", "coder")
def tools_partial() -> None:
    client = instructor.from_openai(raw, mode=instructor.Mode.TOOLS)
    steps = list(client.create_partial(response_model=City, **COMMON))
    assert steps[-1].name in {"Paris", "London"}


@check("mode JSON (json_object), of a model that can", "coder")
def json_object() -> None:
    assert isinstance(extract(instructor.Mode.JSON), City)


if __name__ == "__main__":
    check.main()
