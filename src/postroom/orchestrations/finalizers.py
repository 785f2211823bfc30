"""Keep the code that Python runs when it frees an object apart from the instance that happens to run.

The garbage collector frees reference cycles at any time, in any thread. ``__del__`` methods and the ``finally`` blocks
of generators run then, and could act as an instance that has nothing to do with them. So no instance runs while the
collector does.

A coroutine that nobody awaits is freed without having run. Python only warns about it. In an orchestration it is an
error: the message that it would have sent is missing.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable
from functools import cache
from types import CoroutineType
from typing import Any

from postroom.orchestrations.event_loop import ORIGIN_DEPTH, InstanceLoop

_UnawaitedHook = Callable[["CoroutineType[Any, Any, Any]"], None]


class _Hidden(threading.local):
    loop: InstanceLoop | None = None


_hidden = _Hidden()


def _hide_instance(phase: str, _: object) -> None:
    """Called by the garbage collector in its thread, before and after it frees objects."""
    if phase == "start":
        loop = asyncio._get_running_loop()
        if isinstance(loop, InstanceLoop):
            _hidden.loop = loop
            asyncio._set_running_loop(None)
    elif _hidden.loop is not None:
        asyncio._set_running_loop(_hidden.loop)
        _hidden.loop = None


def _make_hook(warn: _UnawaitedHook) -> _UnawaitedHook:
    def handle_unawaited(coroutine: CoroutineType[Any, Any, Any]) -> None:
        loop = asyncio._get_running_loop()
        if isinstance(loop, InstanceLoop):
            loop.note_unawaited(coroutine)
        elif len(coroutine.cr_origin or ()) != ORIGIN_DEPTH:
            warn(coroutine)
        # Otherwise it was created by an instance that was dropped.

    return handle_unawaited


@cache
def install_hooks() -> None:
    """Install the hooks of this module, once in a process."""
    gc.callbacks.append(_hide_instance)
    # The interpreter looks this function up whenever it frees a coroutine that has not begun.
    warnings._warn_unawaited_coroutine = _make_hook(warnings._warn_unawaited_coroutine)  # type: ignore[attr-defined]
