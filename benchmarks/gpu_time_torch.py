"""Times torch.topk, sorted and unsorted, and a device copy of the same bytes on the GPU. Run by gpu_check.sh.

A process of its own, since torch and JAX each take the GPU's memory for themselves. CUDA events around chains of calls
on operands that take turns; on a CPU, in a rehearsal, the clock. The rows are not those that JAX is given, but of the
same distributions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from gpu_cases import Case
from gpu_sampling import Chain, parser, sample, time_cases
from summary import installed


def make_rows(case: Case, device: str) -> torch.Tensor:
    shape = (case.rows, case.n)
    if case.kind == "uniform":
        return torch.rand(shape, device=device).to(getattr(torch, case.dtype))
    x = torch.randn(shape, device=device)
    if case.kind == "varying scale":
        x *= torch.exp(2 * torch.randn((case.rows, 1), device=device))
    return (torch.relu(x) if case.kind == "ReLU" else x).to(getattr(torch, case.dtype))


def chain(function: Callable[[torch.Tensor], object], operands: Sequence[torch.Tensor]) -> Chain:
    def run(calls: int) -> tuple[float, float]:
        on_gpu = operands[0].is_cuda
        if on_gpu:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
        start = time.perf_counter()
        for i in range(calls):
            function(operands[i % len(operands)])
        dispatched = time.perf_counter() - start
        if not on_gpu:
            return dispatched, 0.0
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3, dispatched

    return Chain(run, calls=1)


def time_case(case: Case, arguments: argparse.Namespace) -> dict[str, dict]:
    device, buffers = ("cpu", 2) if arguments.rehearse else ("cuda", case.buffers)
    operands = [make_rows(case, device) for _ in range(buffers)]
    # A copy reads and writes each of its bytes.
    size = (case.moved_bytes // 8,)
    copied = [torch.randint(2**31 - 1, size, dtype=torch.int32, device=device) for _ in range(buffers)]
    target = torch.empty_like(copied[0])
    return sample(
        {
            "torch.topk sorted": chain(partial(torch.topk, k=case.k), operands),
            "torch.topk unsorted": chain(partial(torch.topk, k=case.k, sorted=False), operands),
            "torch copy": chain(target.copy_, copied),
        }
    )


def main() -> None:
    arguments = parser(__doc__).parse_args()
    device = "cpu" if arguments.rehearse else torch.cuda.get_device_name()
    time_cases(arguments, {"device": device, "versions": installed("torch")}, time_case)


if __name__ == "__main__":
    main()
