"""What the benchmark asks the server beside the measured requests: its model, how it tokenises,
its profiler.

Runs in: the event loop of the benchmark. Knows nothing of: flags.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.cli.bench_serve.http_pool import HttpPool, reason_of
from octavo.cli.bench_serve.requests import Sample
from octavo.cli.console import show
from octavo.errors import CommandFailed

#: calls of /tokenize and /detokenize at a time
_MAX_CALLS = 64


class ServerFacts:
    """Rare calls below one base URL."""

    def __init__(self, pool: HttpPool, base_url: str, headers: Mapping[str, str]) -> None:
        self._pool = pool
        self._base_url = base_url
        self._headers = {"Content-Type": "application/json", **headers}

    async def first_model(self) -> tuple[str, str]:
        """Name and root (the model's path or repository) of the first served model.

        Raises:
            CommandFailed: the server is not there, refuses, or has no model.
        """
        url = f"{self._base_url}/v1/models"
        try:
            status, answer = await self._call("GET", "/v1/models", None)
        except OSError as error:
            raise CommandFailed(
                f"no server answers at {self._base_url} ({reason_of(error)}); --host and "
                "--port or --base-url name another"
            ) from None
        if status != 200:
            hint = " (OPENAI_API_KEY gives the key)" if status == 401 else ""
            raise CommandFailed(f"{url} answered {status}{hint}")
        try:
            card = answer["data"][0]
            return card["id"], card.get("root") or card["id"]
        except (LookupError, TypeError, AttributeError):
            raise CommandFailed(f"{url} names no model; give one with --model") from None

    async def aligned(self, samples: list[Sample], model: str) -> list[Sample]:
        """Generated prompts, shortened where the server's tokenizer makes more tokens of them than
        ours; as they are if the server cannot tell."""
        try:
            num_tokens = len(await self._tokenize(samples[0].prompt, model))
        except (OSError, LookupError, TypeError):
            show("WARNING: /tokenize unavailable, skipping alignment.")
            return samples
        if num_tokens == samples[0].prompt_len:
            return samples
        show(
            f"WARNING: tokenizer mismatch (server={num_tokens}, expected={samples[0].prompt_len}), "
            "re-aligning prompts."
        )
        limit = asyncio.Semaphore(_MAX_CALLS)

        async def align(sample: Sample) -> Sample:
            async with limit:
                ids = await self._tokenize(sample.prompt, model)
                if len(ids) <= sample.prompt_len:
                    return sample
                body = {"model": model, "tokens": ids[: sample.prompt_len]}
                _, answer = await self._call("POST", "/detokenize", body)
                return msgspec.structs.replace(sample, prompt=answer["prompt"])

        found = await asyncio.gather(*map(align, samples), return_exceptions=True)
        return [
            sample if isinstance(new, BaseException) else new
            for sample, new in zip(samples, found, strict=True)
        ]

    async def profile(self, action: str) -> None:
        """Calls /start_profile or /stop_profile and says how that went."""
        try:
            status, _ = await self._call("POST", f"/{action}_profile", None)
        except OSError as error:
            show(f"The profiler cannot be reached: {reason_of(error)}")
            return
        done = {"start": "Profiler started", "stop": "Profiler stopped"}[action]
        show(done if status == 200 else f"/{action}_profile answered {status}")

    async def _tokenize(self, text: str, model: str) -> list[int]:
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        _, answer = await self._call("POST", "/tokenize", body)
        ids: list[int] = answer["tokens"]
        return ids

    async def _call(self, method: str, path: str, body: object) -> tuple[int, Any]:
        """Status and decoded answer; None for what is no JSON."""
        pieces: list[bytes] = []
        data = b"" if body is None else msgspec.json.encode(body)
        answered = await self._pool.exchange(
            method, path, self._headers, data, lambda piece, now: pieces.append(piece)
        )
        try:
            return answered.status, msgspec.json.decode(b"".join(pieces))
        except msgspec.MsgspecError:
            return answered.status, None
