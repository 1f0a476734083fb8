"""The defaults of files in the Go library's own layout.

Thread: none (pure values).

A file moved from the Go library must keep its meaning. Its defaults are therefore the Go library's, even where those of
a `multilane.yaml` are safer (decision 013). The layout of the file decides (`files.layout`): a file with sections gets
the defaults of `ConsumerGroupConfig`. Owns only these defaults.
"""

from __future__ import annotations

from multilane.config.app.cluster import ClusterConfig, ErrorConfig
from multilane.config.app.consumer import (
    BREAKER_DOC,
    RETRY_ORDER_DOC,
    BreakerAction,
    ConsumerGroupConfig,
    ErrorBreaker,
    OnFailure,
    RetryBackoff,
    RetryOrder,
)
from multilane.config.app.kinds import Seconds
from multilane.config.app.model import ShovelConfig
from multilane.config.app.shape import setting

_SECOND = 1.0


def _as_there(model: type, field: str) -> str:
    """The description of a field that differs only in its default."""
    return str(model.model_fields[field].description).partition(" Default: ")[0]  # type: ignore[attr-defined]


class ScalerBreaker(ErrorBreaker):
    """Unknown to the Go library; in its files the breaker has always stopped the app."""

    action: BreakerAction = setting(BREAKER_DOC, "stop")


class ScalerConsumer(ConsumerGroupConfig):
    """A consumer group of the Go library: one second per record, no back-off, order within each topic only."""

    max_processing_time: Seconds = setting(_as_there(ConsumerGroupConfig, "max_processing_time"), _SECOND)
    retry_backoff: RetryBackoff | None = setting(_as_there(ConsumerGroupConfig, "retry_backoff"), None)
    on_failure: OnFailure = setting(_as_there(ConsumerGroupConfig, "on_failure"), "drop")
    error_breaker: ScalerBreaker | None = setting(_as_there(ConsumerGroupConfig, "error_breaker"), None)
    retry_order: RetryOrder = setting(
        RETRY_ORDER_DOC,
        derived=lambda known: "key" if known.get("unique") else "none",
        derived_doc="key with uniqueListener, else none",
    )


class ScalerErrors(ErrorConfig):
    max_processing_time: Seconds = setting(_as_there(ErrorConfig, "max_processing_time"), _SECOND)


class ScalerCluster(ClusterConfig):
    error: ScalerErrors | None = setting(_as_there(ClusterConfig, "error"), None, key="errorConfig")


class ScalerShovel(ShovelConfig):
    max_processing_time: Seconds = setting(_as_there(ShovelConfig, "max_processing_time"), _SECOND)
