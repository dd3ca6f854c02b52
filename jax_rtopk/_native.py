"""Finds the native modules, registers their FFI targets with XLA, and says what is available.

A checkout without built modules imports all the same: everything then runs on the pure-JAX definitions.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

OF_LONG_ROWS = ("topk_in_parts", "topk_by_digits", "mask_by_digits", "sparsify_by_digits")
SELECTIONS = ("topk", "mask", "sparsify", "bucketed", *OF_LONG_ROWS)
SPARSE = ("gather_sum", "sampled_dot", "scatter_add", "neighbor_sum", "neighbor_dot", "edge_dot")
OPERATIONS = (*SELECTIONS, *SPARSE)
PREFIX = "jax_rtopk_"  # of every FFI target name


@dataclass(frozen=True)
class Backend:
    """The native code for one JAX platform, registered with XLA."""

    module: Any  # offers targets() -> dict of capsules
    prefix: str
    operations: frozenset[str]  # those of `OPERATIONS` that it has; the others run in pure JAX

    def target(self, operation: str) -> str:
        """The FFI target name of one of `OPERATIONS`."""
        return self.prefix + operation

    @property
    def scatters_in_order(self) -> bool:
        """Whether `scatter_add` takes, as two more operands, the entries in the order of their indices."""
        return getattr(self.module, "SCATTERS_IN_ORDER", False)

    def parts(self, rows: int, n: int, k: int, item_bytes: int) -> int:
        """In how many parts it had best select from rows; 1: whole ones."""
        return int(self.module.topk_parts(rows, n, k, item_bytes)) if hasattr(self.module, "topk_parts") else 1

    def by_digits(self, rows: int, n: int, item_bytes: int) -> bool:
        """Whether it had best select from rows, if not in parts, by digits."""
        return hasattr(self.module, "by_digits") and bool(self.module.by_digits(rows, n, item_bytes))

    def workspace(self, operation: str, item_bytes: int, attributes: dict[str, Any]) -> int | None:
        """How many bytes a row the kernels want as an additional result; None if there is to be no such result."""
        if operation == "topk_in_parts":
            return int(self.module.topk_in_parts_workspace(attributes["parts"], attributes["k"], item_bytes))
        if operation.endswith("_by_digits"):
            return int(self.module.by_digits_workspace(item_bytes))
        if operation != "bucketed" or not hasattr(self.module, "bucketed_workspace"):
            return None
        candidates = attributes["num_buckets"] * attributes["bucket_k"]
        return int(self.module.bucketed_workspace(candidates, attributes["k"], item_bytes))


def register(module: Any, platform: str, *, prefix: str = PREFIX) -> Backend:
    """Registers a native module's FFI targets for an XLA platform ("cpu" or "CUDA").

    Tests pass a `prefix` of their own to run another module beside the real one.
    """
    capsules = module.targets()
    backend = Backend(module, prefix, frozenset(name for name in OPERATIONS if PREFIX + name in capsules))
    for operation in backend.operations:
        target = backend.target(operation)
        jax.ffi.register_ffi_target(target, capsules[PREFIX + operation], platform=platform)
        if operation in SELECTIONS:
            _declare_batch_partitionable(target)
    return backend


@cache
def _declare_batch_partitionable(target: str) -> None:
    """Without this XLA gathers a batch-sharded operand before the call.

    Once for all platforms that have the target: XLA reports a second declaration as an error.
    """
    jax.ffi.register_ffi_target_as_batch_partitionable(target)


def _find(name: str) -> ModuleType | None:
    qualified = f"{__package__}.{name}"
    try:
        return importlib.import_module(qualified)
    except ModuleNotFoundError as error:
        if error.name != qualified:  # it is there and broken: say so
            raise
        return None


def _available() -> dict[str, Backend]:
    found = {}
    for platform, name, xla_platform in (("cpu", "_cpu", "cpu"), ("cuda", "_cuda", "CUDA")):
        module = _find(name)
        if module is not None:
            found[platform] = register(module, xla_platform)
    return found


def choose(operation: str, platform: str | None, implementation: str | None, *, needed: bool) -> Backend | None:
    """The back end to lower one of `OPERATIONS` to; None for pure JAX.

    `platform` is None where JAX knows none that native code is for. Where no code is `needed`, "native" has nothing to
    insist on.
    """
    backends = {name: found for name, found in BACKENDS.items() if operation in found.operations}
    backend = backends.get(platform) if platform else None
    if implementation == "native" and backend is None and needed:
        raise NotImplementedError(
            'jax_rtopk: implementation="native" needs native code for the platform, got '
            f"{platform or 'one for which there is none'}; this installation has it for: "
            f"{', '.join(backends) or f'none, as {missing_because()}'}. Pass implementation=None to "
            "use pure JAX where there is none, or reinstall jax_rtopk with it (JAX_RTOPK_CUDA=ON for cuda)."
        )
    return backend if needed and implementation != "xla" else None


def missing_because() -> str:
    """Why there is no native code at all, as far as it can be told; empty if there is some."""
    if BACKENDS:
        return ""
    folder = Path(__file__).parent
    if (folder.parent / "pyproject.toml").is_file():
        return (
            f"this is the source folder {folder}, not the installed package: run Python in another folder than the "
            "source tree's root"
        )
    return "the package was built without it: reinstall jax_rtopk"


# The native back end of each JAX platform that has one. The lowering rules look here each time, so that tests can put
# another in its place (and then clear JAX's caches).
BACKENDS = _available()
