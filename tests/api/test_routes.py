"""Probes, keys, CORS, ids, metrics, errors of the router."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from octavo.api.access_log import AccessLines
from octavo.config.engine import KVEventsConfig, SchedulerConfig
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from tests.fakes.api import VERSION, serving

KEY = "sk-secret-123"
BEARER = {"Authorization": f"Bearer {KEY}"}


def test_probes_of_a_ready_server() -> None:
    async def main() -> None:
        async with serving() as api:
            for path in ("/health", "/ready", "/live", "/ping"):
                assert (await api.client.get(path)).status == 200
            assert (await api.client.request("POST", "/ping")).status == 200
            assert (await api.client.get("/version")).json == {"version": VERSION}
            metrics = await api.client.get("/metrics")
            assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert metrics.body.startswith(b"vllm:")

    asyncio.run(main())


def test_c113_probes_before_ready_while_draining_stalled_and_dead() -> None:
    async def main() -> None:
        async def states() -> list[int]:
            paths = ("/live", "/health", "/ready")
            return [(await api.client.get(path)).status for path in paths]

        async with serving(start=False) as api:
            assert await states() == [200, 503, 503]
            assert (await api.client.chat()).status == 503
        async with serving() as api:
            assert await states() == [200, 200, 200]
            await api.llm.drain(1)
            assert await states() == [200, 200, 503]
            assert (await api.client.get("/ready")).headers["retry-after"] == "1"
        async with serving(stall_limit_s=-1.0) as api:
            api.core.hold()
            request = api.client.send("POST", "/v1/completions", {"prompt": "x"})
            await api.core.has_running(1)
            assert await states() == [200, 200, 503]
            api.core.release()
            assert (await request.answer()).status == 200
        async with serving() as api:
            api.core.die("it was killed")
            await api.llm.wait_dead()
            assert await states() == [200, 503, 503]

    asyncio.run(main())


def test_requests_while_draining_are_refused_with_retry_after() -> None:
    async def main() -> None:
        async with serving() as api:
            await api.llm.drain(1)
            for stream in (False, True):
                answer = await api.client.chat(stream=stream)
                assert answer.status == 503
                assert answer.headers["retry-after"] == "1"
                assert answer.error["type"] == "ServiceUnavailableError"

    asyncio.run(main())


def test_c101_excess_requests_get_503_with_retry_after_and_others_complete() -> None:
    async def main() -> None:
        async with serving(scheduler=SchedulerConfig(max_num_queued_reqs=2)) as api:
            api.core.hold()
            body = {"messages": [{"role": "user", "content": "x"}]}
            requests = [
                api.client.send("POST", "/v1/chat/completions", {**body, "stream": i % 2 == 0})
                for i in range(50)
            ]
            refused = [await r.answer() for r in requests[2:]]
            assert {r.status for r in refused} == {503}
            assert {r.headers["retry-after"] for r in refused} == {"1"}
            api.core.release()
            assert [(await r.answer()).status for r in requests[:2]] == [200, 200]
            three = await api.client.chat(n=3)
            assert three.status == 503

    asyncio.run(main())


OPEN = ["/health", "/ready", "/live", "/ping", "/version", "/metrics"]
CLOSED = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/small"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/load"),
    ("GET", "/kv_event_sources"),
    ("GET", "/docs"),
    ("GET", "/redoc"),
    ("GET", "/openapi.json"),
    ("POST", "/reset_prefix_cache"),
    ("GET", "/no/such/route"),
    ("GET", "/health/"),
    ("GET", "//health"),
]


def test_c118_every_route_but_the_probes_needs_the_key() -> None:
    async def main() -> None:
        async with serving(ServerConfig(api_keys=[KEY, "other"], dev_mode=True)) as api:
            for path in OPEN:
                assert (await api.client.get(path)).status == 200, path
            for method, path in CLOSED:
                for headers in (
                    {},
                    {"Authorization": "Bearer wrong"},
                    {"Authorization": KEY},
                    {"Authorization": f"Basic {KEY}"},
                    {"Authorization": "Bearer "},
                    {"x-api-key": "wrong"},
                ):
                    body = {} if method == "POST" else None
                    answer = await api.client.request(method, path, body, headers=headers)
                    assert answer.status == 401, (path, headers)
                    assert answer.error["code"] == "invalid_api_key"
                    assert KEY not in answer.body.decode()
            for headers in (BEARER, {"x-api-key": KEY}, {"authorization": "bearer other"}):
                assert (await api.client.get("/v1/models", headers=headers)).status == 200

    asyncio.run(main())


def test_c118_metrics_can_be_guarded() -> None:
    async def main() -> None:
        config = ServerConfig(api_keys=[KEY], api_key_guards_metrics=True)
        async with serving(config) as api:
            assert (await api.client.get("/metrics")).status == 401
            assert (await api.client.get("/metrics", headers=BEARER)).status == 200

    asyncio.run(main())


def test_c118_a_401_carries_cors_headers_and_preflight_passes() -> None:
    async def main() -> None:
        config = ServerConfig(api_keys=[KEY], allowed_origins=["https://app.example"])
        async with serving(config) as api:
            origin = {"Origin": "https://app.example"}
            refused = await api.client.get("/v1/models", headers=origin)
            assert refused.status == 401
            assert refused.headers["access-control-allow-origin"] == "https://app.example"
            preflight = await api.client.request(
                "OPTIONS",
                "/v1/chat/completions",
                headers={
                    **origin,
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization",
                },
            )
            assert preflight.status == 200

    asyncio.run(main())


def test_cors_is_off_by_default_and_options_needs_no_key() -> None:
    async def main() -> None:
        async with serving(ServerConfig(api_keys=[KEY])) as api:
            answer = await api.client.get("/health", headers={"Origin": "https://app.example"})
            assert "access-control-allow-origin" not in answer.headers
            assert (await api.client.request("OPTIONS", "/v1/models")).status == 405

    asyncio.run(main())


@pytest.mark.parametrize("root_path", ["", "/llm"])
def test_keys_work_behind_a_path_based_proxy(root_path: str) -> None:
    async def main() -> None:
        async with serving(ServerConfig(api_keys=[KEY])) as api:
            assert (await api.client.get("/health", root_path=root_path)).status == 200
            assert (await api.client.get("/v1/models", root_path=root_path)).status == 401
            answer = await api.client.get("/v1/models", root_path=root_path, headers=BEARER)
            assert answer.status == 200

    asyncio.run(main())


def test_unknown_routes_and_methods_have_the_error_shape() -> None:
    async def main() -> None:
        async with serving() as api:
            missing = await api.client.get("/v1/nope")
            assert missing.status == 404
            assert missing.error["type"] == "NotFoundError"
            wrong = await api.client.get("/v1/chat/completions")
            assert wrong.status == 405
            assert wrong.error["code"] == 405
            assert wrong.headers["allow"] == "POST"

    asyncio.run(main())


def test_models_are_listed_with_their_window() -> None:
    async def main() -> None:
        async with serving() as api:
            cards = (await api.client.get("/v1/models")).json
            assert cards["object"] == "list"
            assert [card["id"] for card in cards["data"]] == ["small", "org/small-2"]
            assert {card["max_model_len"] for card in cards["data"]} == {api.llm.max_model_len}
            assert cards["data"][0]["root"] == "tiny"
            one = await api.client.get("/v1/models/org/small-2")
            assert one.json["id"] == "org/small-2"
            assert (await api.client.get("/v1/models/nope")).error["code"] == "model_not_found"

    asyncio.run(main())


def test_request_ids_are_taken_and_echoed_with_the_flag() -> None:
    async def main() -> None:
        async with serving(ServerConfig(enable_request_id_headers=True)) as api:
            answer = await api.client.get("/health", headers={"X-Request-Id": "abc"})
            assert answer.headers["x-request-id"] == "abc"
            assert len((await api.client.get("/health")).headers["x-request-id"]) == 32
            body = {"messages": [{"role": "user", "content": "x"}]}
            chat = await api.client.post(
                "/v1/chat/completions", body, headers={"X-Request-Id": "my\x07id\x85"}
            )
            assert chat.json["id"] == "chatcmpl-myid"
            assert chat.headers["x-request-id"] == "myid"
        async with serving() as api:
            chat = await api.client.post(
                "/v1/chat/completions", body, headers={"X-Request-Id": "abc"}
            )
            assert chat.json["id"] == "chatcmpl-abc"
            assert "x-request-id" not in chat.headers

    asyncio.run(main())


def test_equal_request_ids_do_not_collide() -> None:
    async def main() -> None:
        async with serving() as api:
            api.core.hold()
            body = {"prompt": "x", "request_id": "same"}
            requests = [api.client.send("POST", "/v1/completions", body) for _ in range(3)]
            await api.core.has_running(3)
            api.core.release()
            answers = [await r.answer() for r in requests]
            assert [a.status for a in answers] == [200] * 3
            assert {a.json["id"] for a in answers} == {"cmpl-same"}
            bad = await api.client.post("/v1/completions", {"prompt": "x", "request_id": "a\nb"})
            assert bad.error["param"] == "request_id"

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/invocations"])
def test_the_header_of_a_proxy_wins_over_the_bodys_priority(path: str) -> None:
    async def main() -> None:
        async with serving() as api:
            chat = {"messages": [{"role": "user", "content": "x"}]}
            body = {**({"prompt": "x"} if path == "/v1/completions" else chat), "priority": 3}
            for header, expected in ((None, 3), ("-7", -7), ("+5", 5)):
                headers = {} if header is None else {"X-Vllm-Priority": header}
                assert (await api.client.post(path, body, headers=headers)).status == 200
                assert api.core.added[-1].priority == expected
            for header in ("high", "1.5", "", "9" * 19, "1" * 5000):
                answer = await api.client.post(path, body, headers={"X-Vllm-Priority": header})
                assert (answer.status, answer.error["param"]) == (400, "X-Vllm-Priority")

    asyncio.run(main())


def test_http_metrics_count_routes_not_probes_or_scanners() -> None:
    async def main() -> None:
        seen: list[tuple[str, str, str, float]] = []
        async with serving(observe_http=lambda *row: seen.append(row)) as api:
            await api.client.get("/health")
            await api.client.get("/metrics")
            await api.client.chat()
            await api.client.chat(n=0)
            await api.client.get("/v1/models/small")
            await api.client.get("/wp-admin.php")
            assert [row[:3] for row in seen] == [
                ("POST", "/v1/chat/completions", "2xx"),
                ("POST", "/v1/chat/completions", "4xx"),
                ("GET", "/v1/models/{model_id}", "2xx"),
                ("GET", "none", "4xx"),
            ]
            assert all(row[3] >= 0 for row in seen)

    asyncio.run(main())


def test_load_counts_only_with_the_flag() -> None:
    async def main() -> None:
        for tracked in (True, False):
            async with serving(ServerConfig(enable_server_load_tracking=tracked)) as api:
                api.core.hold()
                request = api.client.send("POST", "/v1/completions", {"prompt": "x"})
                await api.core.has_running(1)
                load = (await api.client.get("/load")).json["server_load"]
                assert load == (1 if tracked else 0)
                api.core.release()
                await request.answer()
                assert (await api.client.get("/load")).json["server_load"] == 0

    asyncio.run(main())


def test_kv_event_sources_are_the_publishers_by_number_of_their_engine() -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.get("/kv_event_sources")).json == {}
        events = KVEventsConfig(endpoint="tcp://*:4001", topic="t")
        async with serving(kv_events=events) as api:
            assert (await api.client.get("/kv_event_sources")).json == {
                "0": {
                    "enable_kv_cache_events": True,
                    "publisher": "zmq",
                    "endpoint": "tcp://*:4001",
                    "replay_endpoint": None,
                    "buffer_steps": 10_000,
                    "hwm": 100_000,
                    "max_queue_size": 100_000,
                    "topic": "t",
                }
            }

    asyncio.run(main())


def test_tokenize_and_detokenize_are_inverse() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post(
                "/tokenize",
                {"prompt": "a\u20ac", "add_special_tokens": False, "return_token_strs": True},
            )
            assert answer.json["count"] == len(answer.json["tokens"])
            assert answer.json["max_model_len"] == api.llm.max_model_len
            assert len(answer.json["token_strs"]) == answer.json["count"]
            back = await api.client.post("/detokenize", {"tokens": answer.json["tokens"]})
            assert back.json == {"prompt": "a\u20ac"}
            for tokens in ([-1], [10**6], [2**70]):
                bad = await api.client.post("/detokenize", {"tokens": tokens})
                assert bad.status == 400
                assert bad.error["param"] == "tokens[0]"

    asyncio.run(main())


def test_c80_control_tokens_in_text_are_visible_in_tokenize() -> None:
    async def main() -> None:
        async with serving() as api:
            plain = await api.client.post(
                "/tokenize", {"prompt": "<bos>", "add_special_tokens": False}
            )
            assert plain.json["tokens"] == [api.llm.tokenizer.bos_token_id]

    asyncio.run(main())


def test_our_own_mistakes_are_500_without_their_inside(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving() as api:

            def broken(*args: Any, **kwargs: Any) -> str:
                raise ZeroDivisionError("secret detail")

            monkeypatch.setattr(api.template, "render", broken)
            answer = await api.client.chat()
            assert answer.status == 500
            assert answer.error["message"] == "Internal server error"
            assert "ZeroDivisionError" in caplog.text

    asyncio.run(main())


class Tagging:
    """A middleware for `--middleware`."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def tagged(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-tag", b"class")]
            await send(message)

        await self._app(scope, receive, tagged)


async def tagging(request: Any, call_next: Any) -> Any:
    """The same as a function."""
    response = await call_next(request)
    response.headers["x-tag"] = "function"
    return response


@pytest.mark.parametrize(("name", "tag"), [("Tagging", "class"), ("tagging", "function")])
def test_middleware_by_name(name: str, tag: str) -> None:
    async def main() -> None:
        config = ServerConfig(middleware=[f"tests.api.test_routes.{name}"])
        async with serving(config) as api:
            assert (await api.client.get("/v1/models")).headers["x-tag"] == tag

    asyncio.run(main())


@pytest.mark.parametrize("name", ["nope", "no.such.Thing", "tests.api.test_routes.KEY"])
def test_middleware_that_is_none_is_a_config_error(name: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=name):
            async with serving(ServerConfig(middleware=[name])):
                pass

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "kept"), [("/health", False), ("/mine?x=1", False), ("/v1/models", True)]
)
def test_quiet_paths_are_left_out_of_the_access_log(path: str, kept: bool) -> None:
    record = logging.LogRecord(
        "uvicorn.access",
        logging.INFO,
        "f",
        1,
        '%s - "%s %s HTTP/%s" %d',
        ("c", "GET", path, "1.1", 200),
        None,
    )
    assert AccessLines(["/health", "/mine"]).filter(record) is kept
    if kept:
        assert record.getMessage() == f'c - "GET {path} HTTP/1.1" 200 OK'


def test_requests_and_outputs_are_logged_on_request(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        caplog.set_level(logging.INFO, "octavo.api")
        async with serving() as api:
            await api.client.complete("not logged")
            assert "not logged" not in caplog.text
        config = ServerConfig(enable_log_requests=True, enable_log_outputs=True, max_log_len=5)
        async with serving(config) as api:
            await api.client.complete("abcdefgh")
            await api.client.complete([65, 66], stream=True)
            assert "prompt: 'abcde'" in caplog.text
            assert "prompt_token_ids: [65, 66]" in caplog.text
            assert "output: 'hgfed'" in caplog.text
            assert "output: 'BA'" in caplog.text

    asyncio.run(main())
