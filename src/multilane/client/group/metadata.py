"""A consumer's identity in its group, in the form that transactions of librdkafka accept.

Thread: any (a value).

`confluent_kafka.Producer.send_offsets_to_transaction` expects the bytes that librdkafka itself writes for a consumer
(`rd_kafka_consumer_group_metadata_write`, CGMDv2). This class is those bytes, with named fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from multilane.client.group.membership import Identity

_MAGIC: Final = b"CGMDv2:"


class GroupMetadata(bytes):
    """`epoch` is the generation (classic) or the member epoch (KIP-848); `protocol` is classic or consumer."""

    identity: Identity

    def __new__(cls, identity: Identity) -> GroupMetadata:
        instance = identity.instance_id
        made = super().__new__(
            cls,
            _MAGIC
            + identity.epoch.to_bytes(4, "little", signed=True)
            + b"%s\0%s\0" % (identity.group.encode(), identity.member_id.encode())
            + (b"\1" if instance is None else b"\0%s\0" % instance.encode()),
        )
        made.identity = identity
        return made

    @property
    def group(self) -> str:
        return self.identity.group

    @property
    def member_id(self) -> str:
        return self.identity.member_id

    @property
    def epoch(self) -> int:
        return self.identity.epoch

    @property
    def instance_id(self) -> str | None:
        return self.identity.instance_id

    @property
    def protocol(self) -> str:
        return self.identity.protocol

    def __repr__(self) -> str:
        return (
            f"GroupMetadata(group={self.group!r}, member_id={self.member_id!r}, epoch={self.epoch}, "
            f"instance_id={self.instance_id!r}, protocol={self.protocol!r})"
        )

    __str__ = __repr__
