"""Stores bodies of PUT and returns them for GET, over connections that stay open."""
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

kept = {}


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201, b"")

    def do_GET(self):
        body = kept.get(self.path.partition("?")[0])
        if body is None:
            self.answer(404, b"")
        else:
            self.answer(200, body)

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


class Server(ThreadingHTTPServer):
    # With Python's backlog of 5, the queue would be full for some of eight concurrent clients.
    request_queue_size = 64


Server((sys.argv[1], int(sys.argv[2])), Store).serve_forever()
