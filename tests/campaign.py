"""A fuzz campaign: random calls of the public functions, every result bit for bit against the oracles.

    python tests/campaign.py --cases 1000000 --seed 0 --seconds 280
    python tests/campaign.py --seed 0 --backend native --call 812      # one call again, as a failure prints it

A case is one row, of a kind and a content of its own, that a call selects from, or that takes part in a sparse product
or a sum over neighbors. The rows of a call, up to a few hundred, share one compiled program: shape, axis, dtype, k and
options are drawn anew for each call. It ends at the number of cases, at the first failure, or when time is up.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import jax
import numpy as np
import oracle
import random_calls
import sparse_oracle
from random_calls import Call, Limits

# Some of the longest rows are shared by the threads.
LIMITS = {
    "native": Limits(True, 512, 2**17, ((40, 0.2), (300, 0.4), (1500, 0.3), (20000, 0.09), (2**19, 0.01))),
    "xla": Limits(False, 256, 2**15, ((40, 0.3), (300, 0.5), (3000, 0.2))),
    "emulated": Limits(True, 8, 2**11, ((40, 0.4), (300, 0.5), (1500, 0.1))),
}
LIMITS["gpu"] = LIMITS["native"]
PROGRAMS_KEPT = 100  # of what JAX has compiled: a campaign makes thousands, and uses each once


def mismatch(call: Call) -> str | None:
    """What is wrong with the results of a call, if anything."""
    with np.errstate(all="ignore"):
        want = call.want()
    for number, (got, expected) in enumerate(zip(random_calls.run(call), want, strict=True)):
        if (got.dtype, got.shape) != (expected.dtype, expected.shape):
            kinds = [f"{array.dtype}{list(array.shape)}" for array in (got, expected)]
            return f"result {number} is {kinds[0]}, not {kinds[1]}"
        if call.sums:
            got, expected = map(sparse_oracle.with_one_nan, (got, expected))
        wrong = np.argwhere(oracle.bits(got) != oracle.bits(expected))
        if len(wrong):
            at = tuple(map(int, wrong[0]))
            return f"result {number} is wrong in {len(wrong)} places, the first {at}: {got[at]}, not {expected[at]}"
    return None


def campaign(backend: str, *, cases: int, seed: int, seconds: float = float("inf")) -> Iterator[tuple[int, int]]:
    """Runs calls on the back end that is in place, and says after each how many calls and cases are done."""
    until, calls, done = time.monotonic() + seconds, 0, 0
    while done < cases and time.monotonic() < until:
        call = random_calls.draw(seed, calls, LIMITS[backend])
        try:
            wrong = mismatch(call)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            again = f"python tests/campaign.py --backend {backend} --seed {seed} --call {calls}"
            raise AssertionError(f"{call.description}\n{wrong}\nAgain: {again}")
        calls += 1
        done += call.cases
        if calls % PROGRAMS_KEPT == 0:
            jax.clear_caches()
        yield calls, done


def show(backend: str, calls: int, done: int, cases: int, started: float) -> None:
    """The progress bar."""
    if not sys.stderr.isatty():
        return
    width, share = 30, min(1.0, done / cases)
    bar = "#" * int(width * share)
    rate = done / (time.monotonic() - started)
    far = f"{done:,} of {cases:,} cases in {calls:,} calls, {rate:,.0f} a second"
    print(f"\r{backend}: [{bar:{width}}] {far} ", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="how many, on each back end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the time for each back end")
    parser.add_argument(
        "--backend", choices=LIMITS, action="append", help="may be given several times; default: native"
    )
    parser.add_argument("--call", type=int, help="run the call of this number alone")
    options = parser.parse_args()
    import conftest  # the back ends; here, as it changes how JAX starts

    for backend in options.backend or ["native"]:
        with conftest.on(backend):
            if options.call is not None:
                call = random_calls.draw(options.seed, options.call, LIMITS[backend])
                print(call.description, mismatch(call) or "as it should be", sep="\n")
                continue
            started, calls, done = time.monotonic(), 0, 0
            for calls, done in campaign(backend, cases=options.cases, seed=options.seed, seconds=options.seconds):
                show(backend, calls, done, options.cases, started)
            seconds = time.monotonic() - started
            print(f"\n{backend}, seed {options.seed}: {done:,} cases in {calls:,} calls, {seconds:.0f} s: no find")


if __name__ == "__main__":
    main()
