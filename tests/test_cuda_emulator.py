"""The emulator finds the mistakes that it is there to find."""

import pytest
from cuda_emulator import build as emulator


def run_fault(name):
    return emulator.load_faults().jax_rtopk_run_fault(name.encode()).decode()


def test_correct_kernels_pass():
    assert run_fault("correct") == ""


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "out_of_bounds",
            "kernel reverse_rows, block 0, thread 63: out of bounds: 4 bytes at byte 256 of a global array",
        ),
        ("missing_syncwarp", "kernel reverse_rows, block 0, thread 0: races: "),
        ("missing_syncthreads", "kernel reverse_block, block 0, thread 32: races: "),
        ("add_before_sync", "kernel count_remainders, block 0, thread 2: races: overwrites what another thread wrote"),
        ("read_before_sync", "kernel count_remainders, block 0, thread 0: races: reads what another thread wrote"),
        ("blocks_race", "kernel count_blocks, block 1, thread 0: races: another block of the launch wrote it"),
        ("mask_lacks_lane", "wrong mask: 0x55555555 lacks the executing lane"),
        ("mask_differs", "wrong mask: 0xbfffffff, but lane 0 has 0xffffffff"),
        ("divergence", "divergence at a collective: lane 0 is (faults.cc:"),
        (
            "exited_lane",
            "kernel sum_rows, block 0, thread 7: divergence: exits, but lanes 0x0000007f wait",
        ),
        ("uninitialised", "reads shared memory that nobody wrote"),
        ("deadlock", "deadlock"),
    ],
)
def test_mistakes_are_reported(fault, message):
    assert message in run_fault(fault)
