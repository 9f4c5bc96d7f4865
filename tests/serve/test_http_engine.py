"""The engine behind a server: what is tried again, what never is, and that no step runs twice."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from served import app_over, listening

from turnwise.engine.connect import connect
from turnwise.engine.http import HttpEngine
from turnwise.engine.vllm_http import VllmHttpEngine
from turnwise.errors import EngineDown, EngineError, EngineFull, SessionGone, TooLong
from turnwise.testing import FakeEngine
from turnwise.types import Compaction, Sampling

HOW = Sampling(max_tokens=4)


class Breaking(httpx.AsyncBaseTransport):
    """A wire that loses answers, or requests, as its script says: each entry is for the next request."""

    def __init__(self, app: Any, script: list[str]) -> None:
        self.inner = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.script = script
        self.sent: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        fate = self.script.pop(0) if self.script else "well"
        self.sent.append(f"{request.url.path.rsplit('/', 1)[-1]} {fate}")
        if fate == "lost":
            raise httpx.ConnectError("refused")
        if fate == "full":
            return httpx.Response(429, headers={"Retry-After": "0"}, json={"error": {"message": "found no room"}})
        response = await self.inner.handle_async_request(request)
        if fate == "cut":
            await response.aread()
            raise httpx.ReadError("the connection broke")
        return response


def played(script: list[str], patience_s: float = 5.0, **more: Any) -> tuple[list[int], list[str], Any]:
    """Two steps over a wire with that script."""
    app = app_over()

    async def work() -> tuple[list[int], list[str]]:
        wire = Breaking(app, script)
        engine = HttpEngine("http://server", transport=wire, patience_s=patience_s)
        session = await engine.open([5, 6], HOW, seed=1)
        await engine.step(session, [], **more)
        await engine.step(session, [7], **more)
        return list(session.ids), wire.sent

    return *asyncio.run(work()), app.state.server.engine.stats()


@pytest.mark.parametrize("fate", ["lost", "full", "cut"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_request_that_fails_on_the_wire_is_asked_again_and_runs_once(fate, place):
    calm, _, _ = played([])
    ids, sent, stats = played(["well"] * place + [fate])
    assert ids == calm
    assert len(sent) == 4
    assert (stats["tokens_sampled"], stats["sessions"]) == (8, 1)


def test_a_streamed_step_that_breaks_tells_every_token_once():
    heard: list[int] = []
    calm, _, _ = played([])
    ids, _, stats = played(["well", "cut"], listen=lambda token: heard.append(token.id))
    assert ids == calm
    assert heard == [*ids[2:6], *ids[7:]]
    assert stats["tokens_sampled"] == 8


def test_patience_has_an_end():
    with pytest.raises(EngineFull, match="found no room"):
        played(["full"] * 1000, patience_s=0.3)
    with pytest.raises(EngineDown, match=r"found http://server/engine/open not answering"):
        played(["lost"] * 1000, patience_s=0.3)


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time a test can move."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.mark.parametrize("more", [{}, {"listen": lambda _: None}], ids=["whole", "streamed"])
def test_patience_counts_from_the_first_failure_and_not_from_the_beginning_of_a_long_step(more):
    class Long(Breaking):
        """Its first step takes an hour, then the connection breaks."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("step") and not clock.ahead:
                clock.ahead = 3600.0
                self.script = ["cut"]
            return await super().handle_async_request(request)

    async def work() -> int:
        engine = HttpEngine("http://server", transport=Long(app_over(), []), patience_s=5.0)
        return len((await engine.step(await engine.open([5, 6], HOW, seed=1), [], **more)).ids)

    with asyncio.Runner(loop_factory=Clock) as runner:
        clock = runner.get_loop()
        assert runner.run(work()) == 4


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (httpx.Response(200, text="<html>"), "found '<html>' from http://server/engine/open; expected JSON"),
        (httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, text="later"), "later"),
    ],
)
def test_what_a_proxy_says_is_an_error_of_the_engine(answer, text):
    async def work() -> None:
        wire = httpx.MockTransport(lambda request: answer)
        await HttpEngine("http://server", transport=wire, patience_s=0.2).open([5], HOW, seed=1)

    with pytest.raises(EngineError, match=text):
        asyncio.run(work())


@pytest.mark.parametrize("fate", ["lost", "full", "cut"])
def test_a_step_of_vllm_that_may_have_run_is_never_sent_again(fate):
    async def work() -> tuple[int, list[str]]:
        wire = Breaking(app_over(), [fate])
        engine = VllmHttpEngine("http://server", "tiny", transport=wire, patience_s=5.0)
        session = await engine.open([5, 6], HOW, seed=1)
        try:
            return len((await engine.step(session, [])).ids), wire.sent
        except EngineDown:
            return 0, wire.sent

    tokens, sent = asyncio.run(work())
    assert (tokens, len(sent)) == ((0, 1) if fate == "cut" else (4, 2))


def test_a_step_that_was_given_up_after_it_had_run_is_undone():
    async def work() -> tuple[list[int], list[int]]:
        app = app_over()
        wire = Breaking(app, [])
        engine = HttpEngine("http://server", transport=wire)
        session = await engine.open([5, 6], HOW, seed=1)
        first = await engine.step(session, [])
        before = list(session.ids)
        wire.script = ["cut"] * 20
        giving_up = asyncio.create_task(engine.step(session, [8]))
        await asyncio.sleep(0.2)
        giving_up.cancel()
        await asyncio.gather(giving_up, return_exceptions=True)
        wire.script = []
        assert list(session.ids) == before
        said = await engine.step(session, [9])
        assert list(session.ids) == [*before, 9, *said.ids]
        held = app.state.server.sessions.get(session.name).live
        return list(held.ids), [5, 6, *first.ids, 9, *said.ids]

    held, expected = asyncio.run(work())
    assert held == expected


def test_errors_of_the_server_are_errors_of_their_kind():
    async def work() -> list[Any]:
        engine = HttpEngine(
            "http://server", transport=httpx.ASGITransport(app_over(max_prompt_tokens=50)), patience_s=0.1
        )
        session = await engine.open([5, 6], HOW, seed=1)
        await engine.caller.post("http://server/engine/close", {"session": session.name}, again=True)
        calls = [
            engine.step(session, [7]),
            engine.open([1] * 60, HOW, seed=1),
            engine.open([999], HOW, seed=1),
            engine.open([5], Sampling(temperature=-1.0), seed=1),
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    kinds = [type(error) for error in asyncio.run(work())]
    assert kinds == [SessionGone, TooLong, EngineError, EngineError]


def test_sessions_are_spread_over_replicas_and_stay_where_they_are():
    async def work() -> list[tuple[int, int]]:
        engines = [FakeEngine([[1, 2], [3, 4]]), FakeEngine([[1, 2], [3, 4]])]
        async with listening(app_over(engines[0])) as one, listening(app_over(engines[1])) as two:
            engine = HttpEngine([one, two])
            sessions = [await engine.open([5], HOW, seed=n) for n in range(6)]
            for session in [*sessions, *sessions]:
                await engine.step(session, [])
            spread = [(e.open_sessions, len(e.read)) for e in engines]
            await engine.aclose()
            return [*spread, *[(e.open_sessions, len(e.read)) for e in engines]]

    assert asyncio.run(work()) == [(3, 6), (3, 6), (0, 6), (0, 6)]


def test_vllm_is_asked_for_nothing_it_cannot_do():
    async def work() -> list[Any]:
        engine = VllmHttpEngine("http://server", "tiny")
        session = await engine.open([5], HOW, seed=1)
        calls = [
            engine.open([5], HOW, seed=1, compaction=Compaction()),
            engine.open([5], Sampling(choices=((1, 2),)), seed=1),
            engine.open([5], Sampling(top_p=0.9), seed=1),
            engine.step(session, [], sampling=Sampling(top_k=3)),
            engine.open([5], Sampling(min_p=0.1), seed=1),
            engine.compact(session),
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert all("vLLM" in str(error) for error in asyncio.run(work()))


def test_vllm_draws_from_a_restricted_distribution_where_nobody_learns_from_it():
    async def work() -> Any:
        engine = VllmHttpEngine("http://server", "tiny", untrained=True, transport=Breaking(app_over(), []))
        return await engine.step(await engine.open([5, 6], Sampling(top_k=3, max_tokens=4), seed=1), [])

    said = asyncio.run(work())
    assert (len(said.ids), said.support) == (4, None)


def test_a_url_says_what_serves_there():
    async def work() -> tuple[str, str]:
        async with listening(app_over()) as url:
            engine = await connect(f"{url}/v1")
            with pytest.raises(EngineDown, match=r"found models \['tiny'\] at .*; expected other"):
                await connect(url, model="other")
            return type(engine).__name__, engine.urls[0].removeprefix(url)

    assert asyncio.run(work()) == ("HttpEngine", "")
