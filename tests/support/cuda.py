"""What happens on a GPU."""

import contextlib
import warnings

import torch


@contextlib.contextmanager
def synchronisations():
    """Collects a warning for every operation that waits for the device."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        seen.clear()  # it warns about itself
        try:
            yield seen
        finally:
            torch.cuda.set_sync_debug_mode("default")
