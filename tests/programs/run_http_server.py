"""A threading server on the loopback interface, and threads that ask it."""

import http.server
import threading
import urllib.request

hits, lock = 0, threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    """Counts."""

    def do_GET(self):
        global hits  # noqa: PLW0603
        with lock:
            hits += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_):
        """Nothing that changes from run to run."""


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    answers = []

    def ask(name):
        for turn in range(10):
            with opener.open(f"http://127.0.0.1:{server.server_port}/{name}/{turn}", timeout=20) as answer:
                answers.append(answer.read().decode())

    asking = [threading.Thread(target=ask, args=(name,)) for name in "abc"]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    server.shutdown()
    serving.join()
print(hits, sorted(answers))
