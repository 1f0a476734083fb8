"""Loopback ports: reserved ones are free and stay reserved, taken ones are told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from multilane.dev import ports
from multilane.errors import DevKafkaError, PortInUse


@pytest.fixture
def few_ports(monkeypatch, tmp_path) -> list[int]:
    """Only four ports to choose from, and locks that nobody else knows."""
    with ports.ReservedPorts(1) as found:
        [first] = found.ports
    monkeypatch.setattr(ports, "_LOWEST", first)
    monkeypatch.setattr(ports, "_HIGHEST", first + 4)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    free = [port for port in range(first, first + 4) if ports.is_free(port)]
    assert first in free
    return free


def test_reserved_ports_can_be_bound_and_differ():
    with ports.ReservedPorts(8) as reserved:
        assert len(set(reserved.ports)) == 8
        assert all(ports.is_free(port) for port in reserved.ports)


def test_what_is_reserved_is_not_given_twice(few_ports):
    with ports.ReservedPorts(1) as first, ports.ReservedPorts(len(few_ports) - 1) as others:
        assert sorted([*first.ports, *others.ports]) == few_ports
        with pytest.raises(DevKafkaError, match="no 1 free ports"):
            ports.ReservedPorts(1)
    with ports.ReservedPorts(len(few_ports)) as again:
        assert again.ports == few_ports


def test_what_is_forgotten_is_free_again(few_ports):
    forgotten = ports.ReservedPorts(len(few_ports))
    assert forgotten.ports == few_ports
    del forgotten
    with ports.ReservedPorts(len(few_ports)) as again:
        assert again.ports == few_ports


def test_what_a_failed_choice_had_found_is_free_again(few_ports):
    with pytest.raises(DevKafkaError, match="free ports"):
        ports.ReservedPorts(5)
    with ports.ReservedPorts(len(few_ports)) as all_of_them:
        assert all_of_them.ports == few_ports


def test_another_process_sees_the_reservation_until_its_owner_ends(few_ports, tmp_path):
    program = f"""
import sys, tempfile
tempfile.tempdir = {str(tmp_path)!r}
from multilane.dev import ports
ports._LOWEST, ports._HIGHEST = {few_ports[0]}, {few_ports[0] + 4}
held = ports.ReservedPorts({len(few_ports)})
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(DevKafkaError, match="no 1 free ports"):
            ports.ReservedPorts(1)
        owner.kill()
        owner.wait()
    with ports.ReservedPorts(len(few_ports)) as mine:
        assert mine.ports == few_ports


def test_a_port_in_use_is_named():
    with socket.create_server((ports.HOST, 0)) as server, ports.ReservedPorts(1) as reserved:
        taken = server.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"port {taken} .* is in use.*--port"):
            ports.require_free([*reserved.ports, taken])


@pytest.mark.parametrize("kind", ["writable by others", "a link", "a file"])
def test_a_lock_directory_of_others_is_refused(few_ports, tmp_path, kind):
    directory = tmp_path / f"multilane-ports-{os.getuid()}"
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to("elsewhere")
    elif kind == "a file":
        directory.touch()
    else:
        directory.mkdir()
        directory.chmod(0o777)
    with pytest.raises(DevKafkaError, match=rf"{directory} is not a directory that only this user can write to"):
        ports.ReservedPorts(1)


def test_a_lock_directory_that_belongs_to_another_user_is_refused(few_ports, tmp_path, monkeypatch):
    with ports.ReservedPorts(1):
        pass
    [directory] = tmp_path.iterdir()
    if os.getuid() == 0:
        os.chown(directory, 4_321, -1)
    else:
        me = os.getuid() + 1
        directory.rename(tmp_path / f"multilane-ports-{me}")
        monkeypatch.setattr("os.getuid", lambda: me)
    with pytest.raises(DevKafkaError, match="set TMPDIR"):
        ports.ReservedPorts(1)


def test_a_lock_that_is_a_link_is_not_followed(few_ports, tmp_path):
    with ports.ReservedPorts(1):
        pass
    [directory] = tmp_path.iterdir()
    for port in few_ports:
        (directory / str(port)).unlink(missing_ok=True)
        (directory / str(port)).symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        ports.ReservedPorts(1)
    assert not (tmp_path / "target").exists()
