"""Calls FFI handlers without XLA, and so as XLA would not: tests/ffi_host.cc from Python, and memory with guards."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

# XLA's numbers of the dtypes, with some that jax_rtopk does not take.
XLA_TYPES = {
    np.dtype(dtype): number
    for dtype, number in (
        (bool, 1),
        (np.int8, 2),
        (np.int16, 3),
        (np.int32, 4),
        (np.int64, 5),
        (np.uint8, 6),
        (np.uint16, 7),
        (np.uint32, 8),
        (np.uint64, 9),
        (np.float16, 10),
        (np.float32, 11),
        (np.float64, 12),
        (np.complex64, 15),
        (ml_dtypes.bfloat16, 16),
        (np.complex128, 18),
        (ml_dtypes.float8_e5m2, 19),
        (ml_dtypes.float8_e4m3fn, 20),
        (ml_dtypes.float8_e4m3fnuz, 25),
    )
}
ARRAY, SCALAR, STRING = 1, 3, 4  # XLA's numbers of the kinds of attributes


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("dtype", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
    )


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
        ("value", ctypes.c_void_p),
        ("size", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Buffer:
    """An operand or a result, as the handler is told of it."""

    dtype: np.dtype
    shape: tuple[int, ...]
    address: int | None


class Host:
    """The library, built and loaded."""

    def __init__(self, path: Path, mode: int = ctypes.DEFAULT_MODE) -> None:
        self._library = ctypes.CDLL(str(path), mode=mode)
        self._library.host_call.restype = ctypes.c_char_p

    def call(
        self,
        handler: int,
        args: Sequence[Buffer],
        rets: Sequence[Buffer],
        attributes: dict[str, Any],
        *,
        threads: int = 1,
    ) -> str | None:
        """Calls a handler; the code and message of its error, if it returned one.

        Attributes are numpy scalars, numpy arrays or strings.
        """
        made = (_Attribute * len(attributes))()
        kept = []
        for to, (name, value) in zip(made, sorted(attributes.items()), strict=True):
            data = np.frombuffer(value.encode() or b"\0", np.uint8) if isinstance(value, str) else np.atleast_1d(value)
            kind = STRING if isinstance(value, str) else SCALAR if np.ndim(value) == 0 else ARRAY
            kept.append(data)
            number = 0 if isinstance(value, str) else XLA_TYPES[data.dtype]
            to.name, to.type, to.dtype = name.encode(), kind, number
            to.value, to.size = data.ctypes.data, len(value) if isinstance(value, str) else data.size
        message = self._library.host_call(
            ctypes.c_void_p(handler),
            ctypes.c_int64(threads),
            ctypes.c_int64(len(args)),
            _buffers(args),
            ctypes.c_int64(len(rets)),
            _buffers(rets),
            ctypes.c_int64(len(made)),
            made,
        )
        return None if message is None else message.decode()

    def fail_allocation(self, left: int) -> bool:
        """Makes one operator new of the next call fail, after so many that do not; says whether the last one's did.

        Needs to be loaded with RTLD_GLOBAL, before the native module.
        """
        return bool(self._library.host_fail_allocation(ctypes.c_int64(left)))


def _buffers(buffers: Sequence[Buffer]) -> Any:
    made = (_Buffer * len(buffers))()
    for to, buffer in zip(made, buffers, strict=True):
        to.dtype, to.rank = XLA_TYPES[buffer.dtype], len(buffer.shape)
        to.dims = (ctypes.c_int64 * max(1, len(buffer.shape)))(*buffer.shape)
        to.data = buffer.address
    return made


def build(folder: Path, include: str, *flags: str) -> Path:
    """Compiles the host; `include` is the folder of XLA's headers."""
    compiler = os.environ.get("CXX") or shutil.which("g++")
    library = folder / "ffi_host.so"
    source = Path(__file__).with_name("ffi_host.cc")
    options = ("-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread")
    command = [str(compiler), *options, *flags, "-isystem", include, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def handlers(module: Any) -> dict[str, int]:
    """The addresses of a native module's handlers, by the names of their operations."""
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return {
        target.removeprefix("jax_rtopk_"): python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
        for target, capsule in module.targets().items()
    }


class GuardedMemory:
    """Memory that ends at a page that nobody may touch: a read or a write beyond it ends the process."""

    BYTES = 1 << 20
    CANARY = 64  # bytes before what is placed here, to be found as they were

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        page = os.sysconf("SC_PAGESIZE")
        read_write, private_anonymous = 3, 0x22
        begin = libc.mmap(None, self.BYTES + page, read_write, private_anonymous, ctypes.c_size_t(-1).value, 0)
        assert begin != ctypes.c_void_p(-1).value
        self.end = begin + self.BYTES
        assert libc.mprotect(self.end, page, 0) == 0
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * self.BYTES).from_address(begin))

    def place(self, nbytes: int, filling: int) -> int:
        """The address of so many bytes, and a canary before them, all of that value."""
        self._hold(np.full(self.CANARY + nbytes, filling, np.uint8))
        return self.end - nbytes

    def write(self, data: np.ndarray) -> int:
        """The address of a copy of it, behind a canary."""
        canary = np.full(self.CANARY, 0x5A, np.uint8)
        self._hold(np.concatenate([canary, np.ascontiguousarray(data).reshape(-1).view(np.uint8)]))
        return self.end - data.nbytes

    def _hold(self, data: np.ndarray) -> None:
        self._before = data
        self._now = self._bytes[-len(data) :]
        self._now[:] = data

    def check_canary(self) -> None:
        same = self._now[: self.CANARY] == self._before[: self.CANARY]
        assert same.all(), "written before its begin"

    def check_untouched(self) -> None:
        self.check_canary()
        assert (self._now == self._before).all(), "written to, though it is no result"

    def read(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """What is there now."""
        return self._now[self.CANARY :].copy().view(dtype).reshape(shape)
