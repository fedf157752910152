"""One generation request from its prompts to its last byte, streamed or whole.

    prompts -> AsyncLLM.add_request -> outputs -> Reply (wire format) -> events or one body

Neighbours: `octavo/api/openai/chat.py` and `completions.py` (callers), `octavo/frontend/async_llm`.
Runs in: API process, event loop. Owns: the life of a request here: a client that leaves aborts it.
Knows nothing of: wire formats.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Protocol

import msgspec

from octavo.api.asgi import Receive, Scope, Send, direct_writer, header, respond
from octavo.api.disconnect import CancelOnDisconnect
from octavo.api.errors import log_error, openai_error
from octavo.api.merged_outputs import merged_outputs
from octavo.api.request_log import RequestLog
from octavo.api.sse import KEEP_ALIVE, EventStream, ServerEvent, frame
from octavo.errors import InvalidParameter
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.prompt import Prompt
from octavo.frontend.request_stream import RequestStream
from octavo.outputs import RequestOutput
from octavo.sampling_params import BeamSearchParams, SamplingParams
from octavo.wording import shown

PRIORITY_HEADER = b"x-vllm-priority"
PRIORITY = re.compile(rb"[+-]?[0-9]{1,19}")


class Reply(Protocol):
    """A wire format: what the client sees of the outputs."""

    def begin(self, prompt_token_ids: Sequence[list[int]]) -> None:
        """Takes the prompts as the engine sees them, before the first output."""

    def chunks(self, prompt_index: int, output: RequestOutput) -> Sequence[ServerEvent]:
        """What is new, as events."""

    def closing(self) -> Sequence[ServerEvent]:
        """The events after the last output."""

    def whole(self) -> msgspec.Struct:
        """The whole reply, after the last output."""

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Takes an output into the whole reply."""

    def log_text(self) -> str:
        """What was said so far, for the log."""


class Job(msgspec.Struct, frozen=True):
    """One generation request, checked as far as HTTP can."""

    request_id: str
    prompts: Sequence[Prompt]
    params: SamplingParams | BeamSearchParams
    reply: Reply
    stream: bool
    priority: int = 0
    cache_salt: str | None = None
    headers: list[tuple[bytes, bytes]] = []


class Generator:
    """Runs jobs on an engine.

    Args:
        llm: the engine.
        keep_alive_s: seconds of silence in a stream after which a comment is sent; 0: never.
        log: where requests and outputs are logged.
        log_stack: log the trace of errors.
    """

    def __init__(
        self, llm: AsyncLLM, *, keep_alive_s: float, log: RequestLog, log_stack: bool
    ) -> None:
        self._llm = llm
        self._keep_alive_s = keep_alive_s
        self._log = log
        self._log_stack = log_stack
        self.num_running = 0

    async def run(self, job: Job, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the job.

        Raises:
            RequestError, EngineError: nothing was sent yet.
        """
        job = _with_priority(job, scope)
        self.num_running += 1
        try:
            async with CancelOnDisconnect(receive) as client, AsyncExitStack() as stack:
                streams = await self._add_requests(job, stack)
                if job.stream:
                    events = EventStream(send, job.headers, direct_writer(scope))
                    last = await self._stream(job, streams, events)
                else:
                    body = await self._whole(job, streams)
            if client.disconnected:
                return  # leaving the streams has aborted (and logged) the request
            if job.stream:
                await events.end(last)
            else:
                await respond(send, 200, body, headers=job.headers)
        finally:
            self.num_running -= 1

    async def _add_requests(self, job: Job, stack: AsyncExitStack) -> list[RequestStream]:
        streams: list[RequestStream] = []
        # ids may come from clients: the engine's own differ even when those repeat
        unique = secrets.token_hex(4)
        for index, prompt in enumerate(job.prompts):
            name = job.request_id if len(job.prompts) == 1 else f"{job.request_id}-{index}"
            self._log.log_input(name, prompt, job.params)
            stream = await self._add_request(job, prompt, f"{name}-{unique}")
            streams.append(await stack.enter_async_context(stream))
        job.reply.begin([stream.prompt_token_ids for stream in streams])
        return streams

    async def _add_request(self, job: Job, prompt: Prompt, name: str) -> RequestStream:
        if isinstance(job.params, BeamSearchParams):
            return await self._llm.add_beam_search(
                prompt, job.params, name, priority=job.priority, cache_salt=job.cache_salt
            )
        return await self._llm.add_request(
            prompt, job.params, name, priority=job.priority, cache_salt=job.cache_salt
        )

    async def _stream(self, job: Job, streams: list[RequestStream], events: EventStream) -> bytes:
        """Sends all events but the last ones, which it returns."""
        reply = job.reply
        if len(streams) == 1 and isinstance(job.params, SamplingParams) and job.params.n == 1:
            # several outputs of a step are merged on their way to the task: one write for all
            streams[0].offer_to(partial(_send_now, reply, events))
        try:
            async with aclosing(merged_outputs(streams, self._keep_alive_s)) as outputs:
                async for item in outputs:
                    await events.write(KEEP_ALIVE if item is None else frame(reply.chunks(*item)))
            last = frame(reply.closing())
        except Exception as error:
            if not events.started:
                raise
            log_error(error, job.request_id, with_stack=self._log_stack)
            return frame([openai_error(error)])
        self._log.log_output(job.request_id, reply.log_text)
        return last

    async def _whole(self, job: Job, streams: list[RequestStream]) -> bytes:
        reply = job.reply
        async with aclosing(merged_outputs(streams)) as outputs:
            async for item in outputs:
                assert item is not None
                reply.add(*item)
        self._log.log_output(job.request_id, reply.log_text)
        return msgspec.json.encode(reply.whole())


def _with_priority(job: Job, scope: Scope) -> Job:
    """The job with the priority that a proxy in front gave it, if one did."""
    given = header(scope, PRIORITY_HEADER)
    if given is None:
        return job
    if not PRIORITY.fullmatch(given) or not -(2**63) <= int(given) < 2**63:
        raise InvalidParameter(
            f"X-Vllm-Priority must be an integer, got {shown(given.decode('latin-1'))}.",
            param="X-Vllm-Priority",
        )
    return msgspec.structs.replace(job, priority=int(given))


def _send_now(reply: Reply, events: EventStream, output: RequestOutput) -> bool:
    """Sends what is new without waking the request's task; False if that cannot be done now."""
    if not events.can_write_now():
        return False
    events.write_now(frame(reply.chunks(0, output)))
    return True
