"""Checks that the groups can distinguish several members of one application.

Thread: application.
"""

from __future__ import annotations

from multilane.app.app import App
from multilane.config.app.clients import consumer_properties
from multilane.config.app.loading import MEMBER_VARIABLE
from multilane.config.app.model import AppConfig
from multilane.config.consumer import parse_consumer
from multilane.errors import ConfigError


def check_members_differ(app: App) -> None:
    """Members with the same group.instance.id would fence each other out of their group, again and again. Only a
    configuration that is read from files can be checked for other members."""
    static = [name for name in app.consumers if _instance_id(app.config, name) is not None]
    first, second = (app.config_of(0), app.config_of(1)) if static else (None, None)
    if first is None or second is None:
        return
    for name in static:
        if _instance_id(first, name) == _instance_id(second, name):
            raise ConfigError(
                f"consumers.{name} has the same group.instance.id for all members, so they would fence each other: "
                f"put ${{{MEMBER_VARIABLE}}} into it, which is the member's number, or run one member"
            )


def _instance_id(config: AppConfig, name: str) -> str | None:
    consumer = config.consumers[name]
    return parse_consumer(consumer_properties(consumer, config.cluster(consumer.cluster))).group.group_instance_id
