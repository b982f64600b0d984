"""The watchdog of a forked child."""

import faulthandler
import signal
import sys


def die_with_all_stacks_after(seconds):
    """Dump all stacks and die, unless the process has ended by then.

    faulthandler's own timer cannot be used: one that the parent has set is inherited without the thread behind it, and setting
    another waits for that thread.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=sys.__stderr__, all_threads=True, chain=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)
