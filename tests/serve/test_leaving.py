"""Clients that go away or read slowly: sampling stops, nothing is held, others are not disturbed."""

from __future__ import annotations

import asyncio
import json
import socket

import httpx
import pytest
from served import app_over, client, listening

LONG = {"token_ids": [5], "sampling_params": {"max_tokens": 4000, "seed": 1}}
SHORT = {"token_ids": [5], "sampling_params": {"max_tokens": 3, "seed": 1}}


async def quiet(app, seconds: float = 10.0) -> None:
    """Until nothing runs."""
    server = app.state.server
    async with asyncio.timeout(seconds):
        while server.running or server.engine.stats()["running"]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_stops_its_sampling(stream):
    async def work():
        app = app_over()
        async with client(app) as http:
            if stream:
                async with http.stream("POST", "/inference/v1/generate", json={**LONG, "stream": True}) as said:
                    await anext(said.aiter_lines())
            else:
                with pytest.raises(httpx.ReadTimeout):
                    await http.post("/inference/v1/generate", json=LONG, timeout=0.2)
            await quiet(app)
            stats = app.state.server.engine.stats()
            return stats["tokens_sampled"], stats["sessions"], (await http.post("/inference/v1/generate", json=SHORT))

    sampled, sessions, after = asyncio.run(work())
    assert sampled < 4000 and sessions == 0
    assert after.status_code == 200


def test_a_step_whose_client_goes_away_leaves_its_session_as_it_was():
    async def work():
        app = app_over()
        async with client(app) as http:
            named = {"X-Session-ID": "a"}
            first = (await http.post("/inference/v1/generate", json=SHORT, headers=named)).json()["choices"][0]
            prompt = [5, *first["token_ids"], 9]
            with pytest.raises(httpx.ReadTimeout):
                await http.post(
                    "/inference/v1/generate", json={**LONG, "token_ids": prompt}, headers=named, timeout=0.2
                )
            await quiet(app)
            body = {**SHORT, "token_ids": prompt}
            within = (await http.post("/inference/v1/generate", json=body, headers=named)).json()
            alone = (await http.post("/inference/v1/generate", json=body)).json()
            return within["choices"][0]["token_ids"], alone["choices"][0]["token_ids"]

    within, alone = asyncio.run(work())
    assert within == alone


def test_a_reader_that_takes_nothing_is_cut_off_and_holds_up_nobody():
    async def work():
        app = app_over(stall_s=0.3)
        async with listening(app) as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
            body = json.dumps(
                {**LONG, "stream": True, "sampling_params": {"max_tokens": 4000, "seed": 1, "logprobs": 20}}
            ).encode()
            head = f"POST /inference/v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            port = int(url.rsplit(":", 1)[1])
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(sock, head.encode() + body)
            await asyncio.sleep(0.2)
            served = await http.post("/inference/v1/generate", json=SHORT)
            await quiet(app, 25)
            sock.close()
            return served.status_code, app.state.server.engine.stats()["sessions"]

    assert asyncio.run(work()) == (200, 0)


def test_a_body_that_stops_coming_is_not_waited_for():
    async def work():
        async with listening(app_over(stall_s=0.2)) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
            writer.write(b"POST /inference/v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            line = await asyncio.wait_for(reader.readline(), 10)
            writer.close()
            return line

    assert asyncio.run(work()).startswith(b"HTTP/1.1 408")
