"""The kernels' machine code: its file format, and how it is loaded as functions.

Thread: any.
Owns: the file format, its checksum, and the engine that holds the code as long as the process lives.
Never: imports numba. Loading takes milliseconds and only llvmlite. Never: registers a symbol with LLVM: its table
belongs to the whole process, and code that the user compiles with numba would find our symbol instead of numba's.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

import llvmlite.binding as llvm

_MAGIC: Final = b"multilane kernels 1\n"
_DIGEST: Final = 32
_engines: list[Any] = []  # the owner of the code must live as long as it may be called


class BrokenImage(ValueError):
    """The file is damaged. The kernels are compiled again."""


@dataclass(frozen=True, slots=True)
class Image:
    """Object files, and the symbol of each kernel in them. They need only the C library."""

    objects: tuple[bytes, ...]
    names: dict[str, str]

    def pack(self) -> bytes:
        header = {"names": self.names, "sizes": [len(o) for o in self.objects]}
        body = json.dumps(header).encode() + b"\n" + b"".join(self.objects)
        return _MAGIC + hashlib.sha256(body).digest() + body


def unpack(data: bytes) -> Image:
    start = len(_MAGIC) + _DIGEST
    body = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise BrokenImage("the stored kernels are damaged")
    head, _, rest = body.partition(b"\n")
    header = json.loads(head)
    objects = []
    for size in header["sizes"]:
        objects.append(rest[:size])
        rest = rest[size:]
    return Image(tuple(objects), header["names"])


def target_machine() -> Any:
    """This processor, with all its features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )


def processor() -> str:
    """The processor properties that the machine code depends on."""
    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def addresses(image: Image) -> dict[str, int]:
    """The address of each kernel, ready to be called."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    for data in image.objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _engines.append(engine)
    return {kernel: engine.get_function_address(symbol) for kernel, symbol in image.names.items()}
