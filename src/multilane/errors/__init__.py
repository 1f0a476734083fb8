"""Every error that multilane raises: one tree, and three facts that a caller may act on.

Thread: any (values).

`retriable` means that the same request may succeed later, `refresh_metadata` that the cluster metadata is outdated,
`fatal` that the client cannot continue. The facts are class attributes (or set per broker code), so that code reads
them from the error and never keeps its own list.

This package is where they are imported from, and the module that they name: it is written to the headers of failed
records, and pickled.
"""

from multilane.errors.broker import (
    BrokerError,
    UnknownBrokerCode,
    broker_error,
    printable,
)
from multilane.errors.client import (
    AuthenticationError,
    ClientClosed,
    ClientFailed,
    ConcurrentUse,
    DataLoss,
    ForkedClient,
    LogTruncated,
    NetworkError,
    NoOffsetForPartition,
    NotAssigned,
    OffsetOutOfRange,
    OperationTimeout,
    SaslError,
    TlsError,
    UnsendableRequest,
    UnsupportedVersion,
    WakeupError,
    WrongListener,
    WrongSubscription,
)
from multilane.errors.group import (
    CommitDuringRebalance,
    CommitRefused,
    GroupError,
    GroupRefused,
    InstanceFenced,
    InstanceInUse,
    TooManyCommits,
)
from multilane.errors.platform import (
    BrokerStartError,
    ChannelLost,
    DamagedJars,
    DevKafkaError,
    JavaNotFound,
    MemberFailed,
    NoHistory,
    PortInUse,
    SparkStartError,
    WrongRows,
)
from multilane.errors.processing import (
    AuditNotWritten,
    BreakerOpen,
    GivenUp,
    LibrdkafkaError,
    MarksDoNotFit,
    ProcessingTimeout,
    ProduceFailed,
    PublishStopped,
    RegistryUnavailable,
    UndecodablePayload,
    UnknownSchema,
    WrongFailures,
)
from multilane.errors.records import (
    BlockFull,
    CorruptBatch,
    FrameError,
    OversizedBatch,
    RecordBatchError,
    UnsupportedBatch,
    WireError,
)
from multilane.errors.root import (
    ConfigError,
    ConfigProblems,
    MultilaneError,
    TargetNotFound,
)

__all__ = [
    "AuditNotWritten",
    "AuthenticationError",
    "BlockFull",
    "BreakerOpen",
    "BrokerError",
    "BrokerStartError",
    "ChannelLost",
    "ClientClosed",
    "ClientFailed",
    "CommitDuringRebalance",
    "CommitRefused",
    "ConcurrentUse",
    "ConfigError",
    "ConfigProblems",
    "CorruptBatch",
    "DamagedJars",
    "DataLoss",
    "DevKafkaError",
    "ForkedClient",
    "FrameError",
    "GivenUp",
    "GroupError",
    "GroupRefused",
    "InstanceFenced",
    "InstanceInUse",
    "JavaNotFound",
    "LibrdkafkaError",
    "LogTruncated",
    "MarksDoNotFit",
    "MemberFailed",
    "MultilaneError",
    "NetworkError",
    "NoHistory",
    "NoOffsetForPartition",
    "NotAssigned",
    "OffsetOutOfRange",
    "OperationTimeout",
    "OversizedBatch",
    "PortInUse",
    "ProcessingTimeout",
    "ProduceFailed",
    "PublishStopped",
    "RecordBatchError",
    "RegistryUnavailable",
    "SaslError",
    "SparkStartError",
    "TargetNotFound",
    "TlsError",
    "TooManyCommits",
    "UndecodablePayload",
    "UnknownBrokerCode",
    "UnknownSchema",
    "UnsendableRequest",
    "UnsupportedBatch",
    "UnsupportedVersion",
    "WakeupError",
    "WireError",
    "WrongFailures",
    "WrongListener",
    "WrongRows",
    "WrongSubscription",
    "broker_error",
    "printable",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
