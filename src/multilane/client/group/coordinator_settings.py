"""The settings of a group's coordinator, as two calls: which broker it is, and what that broker's settings are.

Thread: none (pure).

Another broker may have other values, so only the coordinator is asked. It may refuse: settings are for those who may
describe the cluster's configuration. Never retries what was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from multilane.client.admin.answers import coordinator_in
from multilane.client.calls import Call
from multilane.errors import MultilaneError, broker_error
from multilane.wire.compose_groups import FIND_COORDINATOR_AT_LEAST, broker_settings_request, find_coordinator_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.types import NodeId

METADATA_LIMIT: Final = "offset.metadata.max.bytes"


def coordinator_call(group: str, deadline: float) -> Call:
    def judge(response: Any) -> MultilaneError | None:
        code, _ = coordinator_in(response, group)
        return broker_error(code, f"FindCoordinator of group {group}") if code else None

    return Call(
        ApiKey.FIND_COORDINATOR,
        lambda version: find_coordinator_request(version, group),
        deadline,
        Future(),
        at_least=FIND_COORDINATOR_AT_LEAST,
        judge=judge,
    )


def settings_call(node: NodeId, names: Sequence[str], deadline: float) -> Call:
    def judge(response: Any) -> MultilaneError | None:
        codes = [int(result.error_code) for result in response.results if int(result.error_code)]
        return broker_error(codes[0], f"DescribeConfigs of broker {node}") if codes else None

    return Call(
        ApiKey.DESCRIBE_CONFIGS,
        lambda version: broker_settings_request(version, node, names),
        deadline,
        Future(),
        node,
        judge=judge,
    )


def settings_in(response: Any) -> dict[str, str]:
    """By name. A sensitive value is not in it."""
    return {
        str(config.name): str(config.value)
        for result in response.results
        for config in result.configs
        if config.value is not None
    }
