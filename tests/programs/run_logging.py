"""Threads that log through several handlers, one of which logs while it handles; ends with an exception."""

import io
import logging
import logging.handlers
import queue
import threading

logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.INFO)


class Chatty(logging.Handler):
    """Logs about what it handles."""

    def emit(self, record):
        if record.name != "inner":
            with self.lock:
                logging.getLogger("inner").debug("handled %s", record.getMessage())


stream, passed_on = io.StringIO(), queue.Queue()
logger = logging.getLogger("program")
logger.propagate = False
logger.addHandler(logging.StreamHandler(stream))
logger.addHandler(Chatty())
listener = logging.handlers.QueueListener(passed_on, logging.StreamHandler(io.StringIO()))
logger.addHandler(logging.handlers.QueueHandler(passed_on))
listener.start()
threads = [threading.Thread(target=lambda: [logger.info("message") for _ in range(50)]) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
listener.stop()
print(stream.getvalue().count("message\n"))
logging.getLogger().warning("to stderr")
raise ValueError("the end")
