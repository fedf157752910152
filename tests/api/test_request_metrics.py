"""`--enable-per-request-metrics`: replies of one choice say how long they took."""

from __future__ import annotations

import asyncio
from typing import Any

from octavo.config.server import ServerConfig
from tests.fakes.api import Api, serving

NAMES = {
    "time_to_first_token_ms",
    "generation_time_ms",
    "queue_time_ms",
    "mean_itl_ms",
    "tokens_per_second",
}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


async def told(api: Api, **fields: Any) -> list[Any]:
    """What a chat and a completion say, whole and in the last event of a stream."""
    answers = []
    for ask in (api.client.chat, api.client.complete):
        answers.append((await ask(**fields)).json)
        *others, last = (await ask(**fields, **USAGE)).chunks
        assert not any("metrics" in chunk for chunk in others)
        answers.append(last)
    return [answer.get("metrics") for answer in answers]


def test_replies_of_one_choice_have_metrics_with_the_flag() -> None:
    async def main() -> None:
        async with serving(ServerConfig(enable_per_request_metrics=True)) as api:
            for metrics in await told(api, max_tokens=3):
                assert set(metrics) == NAMES
                assert metrics["generation_time_ms"] >= 0
            assert await told(api, max_tokens=3, n=2, temperature=1) == [None] * 4
            two = await api.client.complete(prompt=["a", "b"])
            assert "metrics" not in two.json

    asyncio.run(main())


def test_without_the_flag_nothing_is_said() -> None:
    async def main() -> None:
        async with serving() as api:
            assert await told(api) == [None] * 4

    asyncio.run(main())
