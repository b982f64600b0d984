"""A small suite of tests, one of which fails."""

import logging
import threading
import warnings

import pytest


@pytest.fixture
def lock():
    return threading.Lock()


@pytest.mark.parametrize("threads", [1, 4])
def test_counts(threads, lock):
    total = []

    def work():
        for number in range(100):
            with lock:
                total.append(number)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(total) == 100 * threads


def test_fails_and_shows_what_was_logged():
    logging.getLogger("suite").warning("seen by the log section")
    print("seen by the output section")
    lock = threading.Lock()
    with lock:
        held = lock.locked()
    assert not held


def test_warns():
    warnings.warn("from a test", stacklevel=1)
