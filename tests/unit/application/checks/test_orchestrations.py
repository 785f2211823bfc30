"""Problems of orchestrations, and the rules of convoys (ORC-20, 24, PRED-12). All of them are listed together."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from postroom import Application, Message, Property, maps, orchestrations, pipelines
from postroom.errors import DefinitionRefused
from postroom.orchestrations import Correlation, JournalLimits
from postroom.schemas import Schema, Schemas

Kind = Property("Tests.Kind", str)
Key = Property("Tests.Key", str)
Number = Property("Tests.Number", int)
Orders = Correlation(Key, filter=Kind == "order")
Replies = Correlation(Key, filter=Kind == "reply")


def identity(order: Message) -> bytes:
    return order.data


lines = pipelines.JsonLines(promote={Kind: "kind"})
gzip = pipelines.Send(encode=[pipelines.components.GzipEncoder()])
to_order = maps.Python(identity, source="offer", target="order")
also_to_order = maps.Python(identity, source="offer", target="memo")


async def process(order: Message) -> None:
    """Do nothing."""


async def wait() -> None:
    await orchestrations.receive()


async def receive_more(order: Message) -> None:
    await wait()


async def take_two(order: Message, offers: orchestrations.CorrelationSet) -> None:
    """Do nothing."""


def find_problems(function: Any = process, **options: Any) -> list[str]:
    app = Application("tests")
    app.property(Kind, Key, Number)
    app.orchestration(**{"activate": Kind == "order", **options})(function)
    try:
        app.definition()
    except DefinitionRefused as error:
        return [problem.text for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"function": print, "name": "echo"}, "it is not a coroutine function"),
        ({"function": take_two}, "its other parameters must have defaults"),
        ({"version": 0}, "version is 0, but must be 1 or more"),
        ({"priority": 11}, "priority is 11"),
        ({"activate": "Kind"}, "activate is 'Kind', but must be a filter"),
        ({"activate": Number.bitand(4)}, "the filter of an activating receive cannot use bitand"),
        ({"activate": [Number.bitand(4)]}, "the filter of an activating receive cannot use bitand"),
        ({"activate": [Kind == "order"]}, "activate is a list, so it must have no parameter"),
        ({"activate": [], "function": wait}, "activate is an empty list"),
        ({"activate": ["Kind == 'x'", Kind == "y"], "function": wait}, "activate has \"Kind == 'x'\" as number 1"),
        ({"activate": [Key == "x", Key == "x"], "function": wait}, "activate has Tests.Key == 'x' twice"),
        ({"activate": [Key.exists()], "convoy": [Key], "correlations": [Orders], "function": wait}, "arrive twice"),
        ({"function": wait}, "its first parameter must be the message that activates it"),
        ({"function": receive_more}, "it calls orchestrations.receive() in line"),
        ({"convoy": [Kind, Key, Number, Property("Tests.Other", str)]}, "a convoy has one to 3 properties"),
        ({"convoy": [Key, Key]}, "a convoy has one to 3 properties, and each one once"),
        ({"convoy": ["Key"]}, "convoy is ('Key',), but must be a list of properties"),
        ({"convoy": [Key], "activate": None}, "a convoy needs activate"),
        ({"correlations": [Key]}, "must be a list of Correlation(...)"),
        ({"correlations": [Replies, Correlation(Key, filter=Kind == "reply")]}, "each message would arrive twice"),
        (
            {"correlations": [Orders]},
            "so each would start another instance too. Declare convoy=[Key]",
        ),
        ({"correlations": [Correlation(Key)], "activate": Key.exists()}, "also activate it"),
        ({"correlations": [Orders], "activate": (Kind == "x") | (Kind >= "o")}, "also activate it"),
        ({"correlations": [Orders], "convoy": [Key]}, "are messages of its convoy, and would arrive twice"),
        ({"ordered": True}, "ordered has no effect without a convoy or correlations"),
        ({"ordered": 1}, "ordered is 1, but must be True or False"),
        ({"journal_limits": JournalLimits(events=0)}, "both numbers must be 1 or more"),
        ({"journal_limits": 100}, "journal_limits is 100"),
        ({"maps": "order"}, "maps is 'order', but must be a list, such as [maps.Xslt(...)]"),
        ({"maps": [process]}, "is not a map, such as maps.Xslt(...)"),
        ({"maps": [maps.Xslt("gone.xslt", source="a", target="b")]}, "the file 'gone.xslt' cannot be read"),
        ({"pipelines": lines}, "must be a list, such as [pipelines.Json(...)]"),
        ({"pipelines": [pipelines.Rows()]}, "is not a pipeline that an orchestration can run"),
        ({"pipelines": [pipelines.XmlReceive(schemas=Schemas())]}, "pipeline 1: There are no schemas"),
        ({"pipelines": [pipelines.Send(encode=[lambda one: one])]}, "pipeline 1: encode, component 1: A lambda"),
    ],
)
def test_a_wrong_orchestration_is_refused(options: dict[str, Any], why: str) -> None:
    problems = find_problems(**options)
    assert any(why in text for text in problems), problems


@pytest.mark.parametrize(
    "options",
    [
        {"correlations": [Replies, Correlation(Number, filter=Kind == "reply")]},
        {"correlations": [Correlation(Key)]},
        {"correlations": [Orders], "activate": (Kind == "order") & (Number == 1)},
        {"activate": (Kind == "order") | (Kind == "payment"), "convoy": [Key], "correlations": [Replies]},
        {"convoy": [Key], "ordered": True},
        {"activate": [Kind == "order", "memo", Schema(message_type="invoice")], "function": wait},
        {"function": receive_more, "convoy": [Key]},
        {"correlations": [Replies], "ordered": True},
        {"maps": [to_order, also_to_order], "pipelines": [lines, gzip]},
    ],
)
def test_a_valid_orchestration_is_accepted(options: dict[str, Any]) -> None:
    assert find_problems(**options) == []


def test_all_problems_are_listed_together() -> None:
    problems = find_problems(version=0, convoy=[Key, Key], correlations=[Orders, Orders], ordered=None)
    assert len(problems) == 5


def test_calls_whose_results_differ_in_a_replay_are_refused_with_the_alternative() -> None:
    async def look(order: Message) -> None:
        def measure() -> float:
            return time.monotonic()  # in a step it may

        await orchestrations.step(measure)
        if datetime.now(UTC).hour > 18 or random.Random(7).random() > 0.5:
            time.sleep(uuid.uuid4().int)

    first, *others = sorted(find_problems(look))
    line = look.__code__.co_firstlineno + 5
    assert f"it calls datetime.now() in line {line}, which gives another result when it is replayed" in first
    assert first.endswith("use orchestrations.now(), or call it in a step.")
    assert [problem.partition(",")[0] for problem in others] == [
        f"orchestration 'look': it calls time.sleep() in line {line + 1}",
        f"orchestration 'look': it calls uuid.uuid4() in line {line + 1}",
    ]


async def ask_the_clock() -> float:
    return time.time()


async def ask_others() -> float:
    return await ask_the_clock()


def test_coroutine_functions_that_an_orchestration_calls_are_read_too() -> None:
    async def look(order: Message) -> None:
        async def measure() -> float:
            return time.monotonic()

        async def run_in_a_step() -> float:
            return time.perf_counter()

        await asyncio.gather(ask_others(), measure())
        await orchestrations.step(run_in_a_step)

    line = ask_the_clock.__code__.co_firstlineno + 1
    inner = look.__code__.co_firstlineno + 2
    assert [problem.partition(",")[0] for problem in sorted(find_problems(look))] == [
        f"orchestration 'look': it calls time.monotonic() in line {inner}",
        f"orchestration 'look': it calls time.time() in line {line} of test_orchestrations.py",
    ]


notify_port = partial(orchestrations.send, to="Port")


def test_a_partial_of_a_coroutine_function_can_be_called() -> None:
    async def notify(order: Message) -> None:
        await notify_port(order)

    async def forget(order: Message) -> None:
        notify_port(order)  # type: ignore[unused-coroutine]

    assert find_problems(notify) == []
    [problem] = find_problems(forget)
    assert "it calls notify_port() in line" in problem


def test_what_differs_between_processes_is_refused() -> None:
    async def look(order: Message) -> None:
        first = os.environ["FIRST"]
        if os.getenv("SECOND") == first:
            await orchestrations.send(Message.of(str(id(order) + hash(first)).encode()))
        for one in asyncio.as_completed([orchestrations.delay(1)]):
            await one

    problems = sorted(problem.partition(" in line")[0] for problem in find_problems(look))
    assert problems == [
        "orchestration 'look': it calls asyncio.as_completed()",
        "orchestration 'look': it calls hash()",
        "orchestration 'look': it calls id()",
        "orchestration 'look': it calls os.getenv()",
        "orchestration 'look': it reads os.environ",
    ]


COLOURS = {"red", "green"}


def test_code_that_depends_on_the_order_of_a_set_is_refused() -> None:
    async def look(order: Message) -> None:
        texts = set(order.data.decode().split())
        for text in texts:
            await orchestrations.send(Message.of(text.encode()))
        for colour in COLOURS:
            await orchestrations.send(Message.of(colour.encode()))
        await asyncio.gather(*{orchestrations.delay(number) for number in range(3)})
        ", ".join(texts | {"other"})
        texts.pop()
        tasks = [asyncio.create_task(orchestrations.delay(1))]
        done, pending = await asyncio.wait(tasks)
        for task in pending:
            task.cancel()
        [task.result() for task in done]

    sets = sorted(problem.partition("the set ")[2].partition(" in line")[0] for problem in find_problems(look))
    assert sets == [
        "COLOURS",
        "done",
        "pending",
        "texts",
        "texts",
        "texts | {'other'}",
        "{orchestrations.delay(number) for number in range(3)}",
    ]
    assert all(problem.endswith(", or use sorted(...).") for problem in find_problems(look))


def test_sets_are_accepted_where_their_order_does_not_matter() -> None:
    async def look(order: Message) -> None:
        texts = set(order.data.split())
        for text in sorted(texts):
            await orchestrations.send(Message.of(text))
        total = sum(len(text) for text in texts) + max(texts, default=b"").count(b"a")
        lengths = {len(text) for text in texts}
        mixed = {1}
        mixed = [3, 2]  # type: ignore[assignment]
        if total in lengths and b"x" in texts and all(text for text in texts):
            for number in {1, 2, 3}:
                await orchestrations.delay(number)
            for number in mixed:
                await orchestrations.delay(number)

    assert find_problems(look) == []


def test_a_call_without_await_is_refused() -> None:
    async def forget(order: Message) -> None:
        async def notify() -> None:
            await orchestrations.send(order)

        orchestrations.send(order)  # type: ignore[unused-coroutine]
        notify()  # type: ignore[unused-coroutine]
        unused = orchestrations.delay(5)  # noqa: F841
        later = orchestrations.send(order)
        await later
        list(order.data)

    line = forget.__code__.co_firstlineno
    assert [problem.partition("; ")[0] for problem in sorted(find_problems(forget))] == [
        f"orchestration 'forget': it calls notify() in line {line + 5} without await, so nothing happens",
        f"orchestration 'forget': it calls orchestrations.delay() in line {line + 6} without await, so nothing happens",
        f"orchestration 'forget': it calls orchestrations.send() in line {line + 4} without await, so nothing happens",
    ]


async def run_components(order: Message) -> None:
    await orchestrations.transform(order, to_order)
    await orchestrations.transform(order, map=also_to_order)
    await orchestrations.execute_receive_pipeline(order, lines)
    await orchestrations.execute_send_pipeline(order, gzip)
    await orchestrations.build_message(b"", {"lines": lines}["lines"])


def test_maps_and_pipelines_that_the_code_runs_have_to_be_declared() -> None:
    problems = find_problems(run_components, maps=[to_order], pipelines=[gzip])
    line = run_components.__code__.co_firstlineno
    calls = [
        ("transform", line + 2, "also_to_order", "maps"),
        ("execute_receive_pipeline", line + 3, "lines", "pipelines"),
    ]
    assert problems == [
        f"orchestration 'run_components': it calls orchestrations.{function}() in line {number} with {name}, which is "
        f"not in its {argument}; add it there."
        for function, number, name, argument in calls
    ]


def test_what_maps_and_pipelines_promote_is_known() -> None:
    app = Application("tests")
    app.property(Kind)
    reads = maps.Python(identity, source="a", target="b", read=pipelines.Json(promote={Number: "n"}, message_type="b"))
    app.orchestration(activate=Kind == "a", maps=[reads], pipelines=[pipelines.Json(promote={Key: "k"})])(process)
    assert {prop.key for prop in app.definition().properties} == {Kind.key, Number.key, Key.key}
