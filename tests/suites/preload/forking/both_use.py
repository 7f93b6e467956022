"""Parent and child read and write one connection: each byte has one reader."""

RECORD = 64
RECORDS = 4000


def dial(client):
    def send():
        for number in range(RECORDS):
            client.sendall(number.to_bytes(RECORD, "big"))
        client.shutdown(1)

    sender = threading.Thread(target=send)
    sender.start()
    seen = []
    while chunk := client.recv(RECORD, 0x100):
        seen.append(int.from_bytes(chunk, "big"))
    sender.join()
    assert sorted(seen) == list(range(RECORDS)), (len(seen), len(set(seen)))


def reflect(peer):
    # MSG_WAITALL over a record is one call of TCP, and a common lock keeps records together.
    while True:
        lock.acquire()
        try:
            record = peer.recv(RECORD, 0x100)
            if record:
                peer.sendall(record)
        finally:
            lock.release()
        if not record:
            return


import multiprocessing

lock = multiprocessing.Lock()
server, client = connected(dial)
# Some records are exchanged by the parent alone, before the child exists.
for _ in range(100):
    server.sendall(receive(server, RECORD))
# A thread of the parent is in a call when the child is forked.
reader = threading.Thread(target=reflect, args=(server,))
reader.start()
child = forked(reflect, server)
reader.join()
server.close()
ended(child, client)
