"""The report opens in a real browser, needs nothing from outside, and shows what the run recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from turnwise.runs import RunFolder, chat, report, rollouts
from turnwise.types import EpisodeStop, Task, Trajectory, Turn, TurnStop

CONFIG = """
name = "goto <ball>"
model = "tiny"
seed = 7
[env]
id = "babyai"
group = 8
args = { level = "GoToRedBall" }
[train]
steps = 30
tasks = 16
"""


def evaluation(success: float) -> dict[str, float]:
    return {"eval/success": success, "eval/low": success - 0.05, "eval/high": success + 0.05, "eval/n": 200}


def numbers(step: int) -> dict[str, float]:
    share = step / 30
    return {
        "reward/mean": share * 0.9,
        "success/mean": share,
        "episode/turns": 12 - 6 * share,
        "loss/total": 0.01 * (-1) ** step,
        "policy/entropy": 1.5 - share,
        "mismatch/max": 10.0 ** (-6 + step % 2),
        "perf/tokens_per_s": 5000.0,
        "time/rollout_s": 2.0,
        "time/train_s": 1.0,
        "time/step_s": 3.5,
        "stop/done": 128 * share,
        "stop/turn_limit": 128 * (1 - share),
    }


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]}


def played(sibling: int, reward: float, turns: int) -> Trajectory:
    ids = np.arange(3, dtype=np.int32)
    turn = Turn(ids, ids, np.zeros(3, np.float32), ids, TurnStop.STOP)
    messages = [
        {"role": "system", "content": "You are in a grid world. " * 40},
        {"role": "user", "content": "Go to the <b>red</b> ball.\n" + "#" * 300},
        *[call("move", json.dumps({"action": "turn left"})), {"role": "tool", "content": "#..o..#"}] * turns,
        {"role": "assistant", "content": f"I earned {reward}."},
    ]
    return Trajectory("babyai", Task("ball-17"), 0, sibling, 0, [turn] * turns, messages, reward)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "goto", CONFIG)
    folder.log(0, evaluation(0.125))
    for step in range(1, 31):
        folder.log(step, numbers(step) | (evaluation(0.875) if step == 30 else {}))
    for _ in range(3):
        folder.event("warning", text="prompts were rewritten", share=0.23)
    rollouts.save(folder.rollout(29), 29, [played(9, 9.0, 1)])
    rewards = [0.5, 0.0, 1.0, 0.25, 0.75]
    rollouts.save(folder.rollout(30), 30, [played(i, r, turns=2 + 8 * i) for i, r in enumerate(rewards)])
    report.write(folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no browser found, expected Chromium; install it with `apt-get install -y chromium`"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Browser, folder: RunFolder, width: int, said: list[str], scheme: str = "light") -> Page:
    """The report in a new tab; `said` collects console messages, script errors and addresses asked for."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto((folder.path / "report.html").as_uri())
    return page


@pytest.fixture(scope="module")
def page(browser: Browser, folder: RunFolder) -> Page:
    return opened(browser, folder, 1280, [])


def wide(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth")


def test_the_page_needs_only_itself_and_its_script_has_no_errors(browser, folder):
    said: list[str] = []
    page = opened(browser, folder, 1280, said)
    page.mouse.move(300, 600)
    assert said == [(folder.path / "report.html").as_uri()]
    assert page.title() == "goto <ball> · Turnwise"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser, folder, width):
    page = opened(browser, folder, width, [])
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    assert wide(page) == width


def test_three_conversations_are_visible(page):
    episodes = page.locator("article.episode")
    assert episodes.locator("h3").all_inner_texts() == ["Best", "Median", "Worst"]
    assert episodes.locator(".bubble:last-child .text").all_inner_texts() == [
        "I earned 1.0.",
        "I earned 0.5.",
        "I earned 0.0.",
    ]
    assert all(chat.is_visible() for chat in episodes.locator(".chat").all())
    assert page.locator(".call:visible").first.inner_text() == "move(action: turn left)"


def test_before_and_after_stand_side_by_side(page):
    rows = page.locator("#success tbody tr").all_inner_texts()
    assert [row.split("\t")[:4] for row in rows] == [
        ["Before training", "12.5%", "7.5% to 17.5%", "200"],
        ["Step 30", "87.5%", "82.5% to 92.5%", "200"],
    ]


def test_every_curve_has_its_figure(page):
    titles = page.locator("figure h3").all_inner_texts()
    assert titles == [
        "Reward",
        "Success",
        "Turns an episode",
        "How episodes end",
        "Loss",
        "Entropy of the policy",
        "Largest sampler/trainer gap",
        "Tokens a second",
        "Seconds a step, by stage",
    ]


def test_pointing_at_a_curve_reads_out_the_step(page):
    figure = page.locator("figure").nth(1)
    box = figure.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 80)
    assert figure.locator("output").inner_text() == "step 30: training 1 · held-out 0.875"
    page.mouse.move(0, 0)
    assert figure.locator("output").inner_text() == ""


def test_the_keyboard_reaches_sections_and_folds(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Held-out success"
    fold = page.locator("#config details")
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    assert "[env]" in fold.inner_text()


def test_dark_follows_the_reader(browser, folder):
    pages = [opened(browser, folder, 1280, [], scheme) for scheme in ("light", "dark")]
    colours = [page.evaluate("getComputedStyle(document.body).backgroundColor") for page in pages]
    assert colours == ["rgb(246, 247, 249)", "rgb(15, 19, 26)"]


def test_equal_warnings_are_counted(page):
    warnings = page.locator("#warnings li span").all_inner_texts()
    assert warnings == ["prompts were rewritten · share 0.23 (3 times)"]


def test_a_run_that_recorded_nothing_still_has_a_page(browser, tmp_path):
    empty = RunFolder.create(tmp_path / "empty", "")
    report.write(empty)
    said: list[str] = []
    page = opened(browser, empty, 390, said)
    assert page.locator("h2").all_inner_texts() == ["Warnings", "Config"]
    assert (len(said), wide(page), page.locator("h1").inner_text()) == (1, 390, "empty")


def test_what_the_model_wrote_cannot_run(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "")
    evil = "<script>alert(1)</script>"
    trajectory = Trajectory("env", Task(evil), 0, 0, 0, error=evil, stop_reason=EpisodeStop.ENV_ERROR)
    trajectory.messages = [
        {"role": evil, "name": evil, "content": [{"type": "text", "text": evil}], "reasoning_content": evil},
        call(evil, json.dumps({evil: evil})),
        call(evil, f"not json {evil}"),
    ]
    rollouts.save(folder.rollout(1), 1, [trajectory])
    folder.event(evil, text=evil)
    folder.log(1, {evil: 1.0})
    assert evil not in report.render(folder)


def test_a_lone_surrogate_does_not_stop_the_report(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "")
    trajectory = Trajectory("env", Task("k"), 0, 0, 0, messages=[{"role": "assistant", "content": "\ud83d"}])
    rollouts.save(folder.rollout(1), 1, [trajectory])
    assert "\\ud83d" in report.write(folder).read_text(encoding="utf-8")


def test_the_middle_of_a_long_conversation_is_folded():
    said = [{"role": "user", "content": str(k)} for k in range(30)]
    page = chat.conversation(said)
    assert page.count('class="bubble') == 30
    assert f"<summary>{30 - chat.FIRST - chat.LAST} more messages</summary>" in page


def test_a_long_text_is_folded_and_none_of_it_lost():
    text = "".join(chr(97 + k % 26) for k in range(chat.LONG + 1))
    page = chat.bubble({"role": "tool", "content": text})
    assert text[: chat.LEAD] + "…" in page
    assert f"<summary>{len(text) - chat.LEAD} more characters</summary>" in page
    assert text[chat.LEAD :] in page
