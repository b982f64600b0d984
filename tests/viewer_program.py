"""The live screen of a made-up process, for a pseudo-terminal. `--help` tells what can be made up."""

import argparse
import json
import sys
import threading
import time

import monitor_fakes
from ticketlock.cli.output import ReaderGoneError, UsageError, complain, silence, terminal
from ticketlock.cli.signals import Aborted
from ticketlock.monitor import app
from ticketlock.monitor.build import build
from ticketlock.monitor.errors import IncompatibleError, MonitorError, NotPermittedError
from ticketlock.monitor.find import Found, Instrumented
from ticketlock.monitor.options import ViewOptions


def _many(tick):
    return monitor_fakes.many(500, tick)


class FakeSource:
    """Readings that `monitor_fakes` makes up, one more tick each time."""

    def __init__(self, wanted):
        self.title = wanted.title
        self.ending = None
        self._wanted = wanted
        self._make = _many if wanted.make == "many" else getattr(monitor_fakes, wanted.make)
        self._tick = 0
        self._latest = None
        self._baseline = None

    def read(self):
        self._tick += 1
        if self._tick == wanted.fail_at:
            raise {"corrupt": IncompatibleError("the segment is damaged", "start it again"),
                   "forbidden": NotPermittedError("you may not look", "ask for it"),
                   "bug": ZeroDivisionError("a mistake of ours")}[wanted.failure]  # fmt: skip
        if self._tick == wanted.block_at:
            threading.Event().wait()
        if self._wanted.end_at is not None and self._tick > self._wanted.end_at:
            self.ending = self._wanted.ending
            return None
        former, self._latest = self._latest, self._make(self._tick)
        if self._wanted.dropped:
            self._latest["dropped"]["locks"] = self._wanted.dropped
        if self._wanted.steps_back and self._tick % 3 == 0:
            time.time = lambda: 0.0
        return build(self._latest, former)

    def total(self):
        return build(self._latest, self._baseline)

    def reset(self):
        self._baseline = self._latest

    def close(self):
        if wanted.log:
            with open(wanted.log, "a") as log:
                log.write(json.dumps({"closed": True, "tick": self._tick}) + "\n")


def processes():
    """A choice of them."""
    return Found(
        tuple(
            Instrumented(pid, ("python3", f"/srv/app{pid}.py"), monitor_fakes.process(pid=pid), 3, 7, 10**9)
            for pid in range(4240, 4240 + wanted.choose)
        ),
        2,
        (),
    )


def run():
    out = terminal(sys.stdout, wanted.color, wanted.ascii)
    if wanted.choose is not None:
        choice = app.choose(processes, out)
        print(f"chose {choice.pid}", flush=True)
        return choice.code
    options = ViewOptions(
        interval_s=wanted.interval,
        count=wanted.count,
        record=wanted.record,
        ascii=wanted.ascii,
        filter=wanted.filter,
        columns=wanted.columns and tuple(wanted.columns.split(",")),
    )
    return app.run(FakeSource(wanted), options, out)


def main():
    """As the command does."""
    try:
        code = run()
        print(f"left with {code}", flush=True)
        return code
    except KeyboardInterrupt:
        return 130
    except UsageError as mistake:
        complain("viewer", str(mistake))
        return 2
    except MonitorError as problem:
        complain("viewer", str(problem))
        return problem.exit_code
    except Aborted as aborted:
        return 128 + aborted.signum
    except (ReaderGoneError, OSError):
        silence(sys.stdout)
        return 141


def again_and_again(times):
    """Show it so many times, each time ended by SIGINT at some moment, and say with what codes."""
    import os
    import random
    import signal

    chance = random.Random(5)
    codes = []
    for _ in range(times):
        # A viewer that was ended ignores further signals; its process would be over.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(chance.uniform(0.0, 0.12), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            codes.append(run())
        except KeyboardInterrupt:
            codes.append("early")
    print(f"codes {sorted(map(str, set(codes)))} of {len(codes)}", flush=True)
    return 0


parser = argparse.ArgumentParser()
parser.add_argument("--make", default="few")
parser.add_argument("--title", default="server.py")
parser.add_argument("--interval", type=float, default=0.05)
parser.add_argument("--count", type=int)
parser.add_argument("--record")
parser.add_argument("--filter", default="")
parser.add_argument("--columns")
parser.add_argument("--ascii", action="store_true")
parser.add_argument("--color", default="auto")
parser.add_argument("--dropped", type=int, default=0)
parser.add_argument("--end-at", type=int)
parser.add_argument("--ending", default="exited (0)")
parser.add_argument("--block-at", type=int)
parser.add_argument("--fail-at", type=int)
parser.add_argument("--failure")
parser.add_argument("--steps-back", action="store_true")
parser.add_argument("--log")
parser.add_argument("--choose", type=int)
parser.add_argument("--times", type=int)
wanted = parser.parse_args()

if __name__ == "__main__":
    sys.exit(again_and_again(wanted.times) if wanted.times else main())
