"""An echo server, and a client that loads a connection until it fails and then makes another one.

serve ADDRESS PORT
visit ADDRESS PORT
    prints LOADED when bytes were echoed, and ERROR WHY when the connection has failed. For each line of standard
    input it makes a new connection, prints AGAIN SAME when bytes were echoed over it, and keeps it until the end.
"""
import errno
import socket
import sys
import threading

PATIENCE = 100
PIECE = bytes(range(256)) * 256


def name(error):
    return errno.errorcode.get(error.errno, str(error)) if error.errno else repr(error)


def echo(peer):
    with peer:
        try:
            while data := peer.recv(65536):
                peer.sendall(data)
            print("SERVED", flush=True)
        except OSError as error:
            print("SERVED UNTIL", name(error), flush=True)


def once(peer):
    peer.sendall(PIECE)
    got = bytearray()
    while len(got) < len(PIECE):
        part = peer.recv(65536)
        if not part:
            raise ConnectionError("end")
        got += part
    assert got == PIECE, "other bytes"


address = (sys.argv[2], int(sys.argv[3]))
if sys.argv[1] == "serve":
    with socket.create_server(address) as listener:
        while True:
            threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
try:
    load = socket.create_connection(address, PATIENCE)
    rounds = 0
    while True:
        once(load)
        rounds += 1
        if rounds == 10:
            print("LOADED", flush=True)
except TimeoutError:
    print("HANG after", rounds, flush=True)
except OSError as error:
    print("ERROR", name(error), "after", rounds, flush=True)
load.close()
kept = []
for _ in sys.stdin:
    kept.append(socket.create_connection(address, PATIENCE))
    once(kept[-1])
    print("AGAIN SAME", flush=True)
