"""Problems of the orchestrations of an application."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping

from postroom.application.checks.fields import host_problems, name_problems, state_problems
from postroom.application.checks.orchestration_code import (
    find_logical_ports,
    find_receives,
    find_undeclared_components,
    find_unreplayable_code,
)
from postroom.application.declarations import Declarations, Declared
from postroom.errors import BadValue, Problem, suggest_names
from postroom.filters.evaluate import predicate_holds
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.filters.text import format_filter
from postroom.maps.port_maps import map_problems
from postroom.orchestrations.correlation import Correlation
from postroom.orchestrations.definition import JournalLimits, Orchestration, OrchestrationFunction
from postroom.orchestrations.receives import to_filter
from postroom.pipelines import Receive, ReceivePipeline, Rows, Send
from postroom.properties import MAX_CONVOY_PROPERTIES, Property


def orchestration_problems(application: Declarations, hosts: Collection[str]) -> Iterator[Problem]:
    """Yield the problems of each orchestration, and two that have the same name and version."""
    first: dict[tuple[str, int], Declared] = {}
    for declared in application.orchestrations:
        one = declared.orchestration
        for text in name_problems("orchestration", one.name):
            yield declared.position.problem(text)
        for text in _problems(declared, hosts):
            yield declared.position.problem(f"orchestration {one.name!r}: {text}")
        other = first.setdefault((one.name, one.version), declared)
        if other is not declared:
            where = f"{other.position.file}:{other.position.line}"
            yield declared.position.problem(
                f"there are two orchestrations named {one.name!r} with version {one.version}; the other is in {where}. "
                "Give the newer one a higher version."
            )


def _problems(declared: Declared, hosts: Collection[str]) -> Iterator[str]:
    one = declared.orchestration
    if not inspect.iscoroutinefunction(one.function):
        yield "it is not a coroutine function; write async def."
    else:
        yield from _function_problems(declared)
    if type(one.version) is not int or one.version < 1:
        yield f"version is {one.version!r}, but must be 1 or more."
    if type(declared.priority) is not int or not 1 <= declared.priority <= 10:
        yield f"priority is {declared.priority!r}, but must be between 1 (first) and 10."
    limits = one.journal_limits
    if not isinstance(limits, JournalLimits):
        yield f"journal_limits is {limits!r}, but must be JournalLimits(events=..., size=...)."
    elif any(type(value) is not int or value < 1 for value in (limits.events, limits.size)):
        yield f"journal_limits is {limits!r}, but both numbers must be 1 or more."
    yield from host_problems(declared.host, hosts)
    yield from state_problems(declared.state)
    yield from _component_problems(declared)
    yield from _activation_problems(declared)
    if type(declared.ordered) is not bool:
        yield f"ordered is {declared.ordered!r}, but must be True or False."
    elif declared.ordered and not one.convoy and not declared.correlations:
        yield "ordered has no effect without a convoy or correlations: each message activates an instance of its own."
    yield from _convoy_problems(declared)
    yield from _correlation_problems(declared)
    yield from _binding_problems(one)


def _function_problems(declared: Declared) -> Iterator[str]:
    one, has_list = declared.orchestration, isinstance(declared.activate, list | tuple)
    if has_list and inspect.signature(one.function).parameters:
        yield (
            "activate is a list, so it must have no parameter. It receives each message, also the first one, with "
            "orchestrations.receive(...)."
        )
    elif not has_list and not _takes_a_message(one.function):
        yield "its first parameter must be the message that activates it, and its other parameters must have defaults."
    else:
        yield from find_unreplayable_code(one.function)
        if declared.activate is not None and not has_list and not one.convoy:
            for where in find_receives(one.function):
                yield (
                    f"it calls orchestrations.receive() {where}, but is no convoy, so there is nothing to receive. "
                    "Declare convoy=[...], or receive from a correlation set."
                )


def _activation_problems(declared: Declared) -> Iterator[str]:
    activate, filters = declared.activate, declared.orchestration.activations
    if isinstance(activate, Filter):
        filters = (activate,)
    elif isinstance(activate, list | tuple):
        if not activate:
            yield "activate is an empty list; name what activates it, or leave it out if other orchestrations start it."
        for number, only in enumerate(activate, 1):
            try:
                to_filter(only)
            except BadValue:
                yield (
                    f"activate has {only!r} as number {number}, but must have filters, such as Kind == 'order', "
                    "schemas or message types, such as 'http://example.org#Order'."
                )
        for filter in sorted({format_filter(one) for one in filters if filters.count(one) > 1}):
            yield f"activate has {filter} twice."
    elif activate is not None:
        yield f"activate is {activate!r}, but must be a filter, such as Kind == 'order', or a list of filters."
    if any(one.operator is Operator.BITAND for filter in filters for group in filter.groups for one in group):
        yield "the filter of an activating receive cannot use bitand; promote a property of its own for it."


def _binding_problems(one: Orchestration) -> Iterator[str]:
    if not isinstance(one.bindings, Mapping):
        yield f"bindings is {one.bindings!r}, but must be a dict: the logical ports with their send ports."
        return
    logical_ports = dict(find_logical_ports(one.function)) if inspect.iscoroutinefunction(one.function) else {}
    for logical_port, to in one.bindings.items():
        if logical_port not in logical_ports:
            hint = suggest_names(str(logical_port), logical_ports, "It sends to", none="no port with a constant name")
            yield f"bindings has {logical_port!r}, but its code does not send to it. {hint}"
        if to is not None and not isinstance(getattr(to, "name", to), str):
            yield (
                f"bindings has {to!r} for {logical_port!r}, but must have a send port, a send port group, the name of "
                "one, or None."
            )


def _component_problems(declared: Declared) -> Iterator[str]:
    """Yield what is wrong with the maps and pipelines, and those that the code runs and does not declare."""
    one, folder = declared.orchestration, declared.position.folder
    yield from map_problems(one.maps, folder, of_port=False)
    if not isinstance(one.pipelines, list | tuple):
        yield f"pipelines is {one.pipelines!r}, but must be a list, such as [pipelines.Json(...)]."
        return
    for number, pipeline in enumerate(one.pipelines, 1):
        if isinstance(pipeline, Rows) or not isinstance(pipeline, ReceivePipeline | Send):
            yield f"pipeline {number}: {pipeline!r} is not a pipeline that an orchestration can run."
            continue
        texts = pipeline.problems()
        if not texts and isinstance(pipeline, Receive | Send):
            texts = pipeline.packing_problems(folder)
        yield from (f"pipeline {number}: {text}" for text in texts)
    if inspect.iscoroutinefunction(one.function) and isinstance(one.maps, list | tuple):
        yield from find_undeclared_components(one.function, one.maps, one.pipelines)


def _takes_a_message(function: OrchestrationFunction) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    return True


def _correlation_problems(declared: Declared) -> Iterator[str]:
    """Yield correlations whose messages would reach an instance twice, or start another instance too (ORC-24)."""
    valid = [correlation for correlation in declared.correlations if isinstance(correlation, Correlation)]
    if len(valid) < len(declared.correlations):
        yield f"correlations is {list(declared.correlations)!r}, but must be a list of Correlation(...)."
    described = [_describe_correlation(correlation) for correlation in valid]
    for text in sorted({text for text in described if described.count(text) > 1}):
        yield f"two of its correlations are {text}, so each message would arrive twice. Declare one, and use it twice."
    activate = declared.orchestration.activate
    if not isinstance(activate, Filter):
        return
    for correlation, text in zip(valid, described, strict=True):
        if not _always_activates(correlation, activate):
            continue
        if declared.orchestration.convoy:
            yield (
                f"the messages of its correlation {text} are messages of its convoy, and would arrive twice. "
                "Receive them with orchestrations.receive()."
            )
        else:
            names = ", ".join(prop.name for prop in correlation.properties)
            yield (
                f"the messages of its correlation {text} also activate it, so each would start another instance too. "
                f"Declare convoy=[{names}] and receive them with orchestrations.receive(), or change a filter."
            )


def _always_activates(correlation: Correlation, activate: Filter) -> bool:
    """Return True if every message of the correlation matches the filter of the activation."""
    equalities = () if correlation.filter is None else correlation.filter.groups[0]
    fixed = {one.property.key: one.value for one in equalities if one.value is not None}
    keys = {prop.key for prop in correlation.all_properties}

    def holds(predicate: Predicate) -> bool:
        is_exists = predicate.operator is Operator.EXISTS
        return predicate.property.key in keys if is_exists else predicate_holds(predicate, fixed)

    return any(all(map(holds, group)) for group in activate.groups)


def _describe_correlation(correlation: Correlation) -> str:
    names = ", ".join(sorted(prop.dotted_name for prop in correlation.properties))
    return f"by {names}" if correlation.filter is None else f"by {names} with {format_filter(correlation.filter)}"


def _convoy_problems(declared: Declared) -> Iterator[str]:
    convoy = declared.orchestration.convoy
    if not convoy:
        return
    if not all(isinstance(prop, Property) for prop in convoy):
        yield f"convoy is {convoy!r}, but must be a list of properties."
        return
    keys = {prop.key for prop in convoy}
    if len(convoy) > MAX_CONVOY_PROPERTIES or len(keys) < len(convoy):
        yield f"a convoy has one to {MAX_CONVOY_PROPERTIES} properties, and each one once."
    if declared.activate is None:
        yield "a convoy needs activate, because its messages match the same filter."
