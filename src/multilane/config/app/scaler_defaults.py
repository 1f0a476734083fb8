"""The defaults of files in the Go library's own layout: what these files have always meant.

Thread: none (pure values).

Whoever moves such a file here must get what it says, so its defaults are the Go library's, also where those of a
`multilane.yaml` are safer (decision 013). The layout decides (`files.layout`), entry by entry: a file with sections has
the defaults of `ConsumerGroupConfig`. Owns nothing but these defaults.
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
    """The sentence of a field whose default alone differs."""
    return str(model.model_fields[field].description).partition(" Default: ")[0]  # type: ignore[attr-defined]


class ScalerBreaker(ErrorBreaker):
    """Unknown to the Go library; in its files it has ended the app since it exists."""

    action: BreakerAction = setting(BREAKER_DOC, "stop")


class ScalerConsumer(ConsumerGroupConfig):
    """A consumer group of the Go library: one second for a record, no back-off, order within each topic alone."""

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
