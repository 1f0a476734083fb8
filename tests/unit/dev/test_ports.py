"""Loopback ports: free ones are free, taken ones are told."""

from __future__ import annotations

import socket

import pytest

from multilane.dev import ports
from multilane.errors import PortInUse


def test_free_ports_can_be_bound_and_differ():
    row = ports.free_ports(8)
    assert len(set(row)) == 8
    assert all(ports.is_free(port) for port in row)


def test_a_port_in_use_is_named():
    with socket.create_server((ports.HOST, 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"port {taken} .* is in use.*--port"):
            ports.require_free([*ports.free_ports(1), taken])
