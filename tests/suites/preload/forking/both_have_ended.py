"""A child has inherited a connection whose two directions have ended. If all bytes were read, the
process that made the connection can end at once. Otherwise the child can still read the rest."""

REST = b"the rest"


# In the functions below, `start` is the end of a pipe that is readable once the peer has sent, and
# `result` is the end of a pipe for the bytes that were received, followed by a full stop.


def read_all(client, start, result):
    os.read(start, 1)
    got = bytearray()
    while chunk := client.recv(100):
        got += chunk
    os.write(result, bytes(got) + b".")


def end_both_directions(client):
    assert client.recv(1) == b""
    client.shutdown(socket.SHUT_WR)


def child_exits_first(client, start, result):
    ended(forked(lambda: None))
    end_both_directions(client)
    os.write(result, b".")


def shut_before_fork(client, start, result):
    client.shutdown(socket.SHUT_WR)
    ended(forked(lambda: None))
    assert client.recv(1) == b""
    os.write(result, b".")


def child_reads_the_end(client, start, result):
    forked(read_all, client, start, result)
    end_both_directions(client)
    client.close()


def child_reads_the_rest(client, start, result):
    client.shutdown(socket.SHUT_WR)
    # Where the peer sends at once, its bytes and the end of its stream are received meanwhile.
    time.sleep(0.3)
    forked(read_all, client, start, result)
    client.close()


def exit_closes(client, start, result):
    """The exit of the process closes the connection."""
    client.shutdown(socket.SHUT_WR)
    forked(read_all, client, start, result)


def run(behaviour, leave, sent, waits_for_child, pause):
    results, result = os.pipe()
    start, started = os.pipe()

    def dial(client):
        os.close(started)
        behaviour(client, start, result)
        leave(0)

    server, client = connected(dial)
    os.close(result)
    os.close(start)
    time.sleep(pause)
    server.sendall(sent)
    server.shutdown(socket.SHUT_WR)
    if not waits_for_child:
        ended_soon(client)
    os.close(started)
    with open(results, "rb") as received:
        got = received.read()
    assert got == sent + b".", (behaviour.__name__, got)
    if waits_for_child:
        ended_soon(client)
    server.close()


for leave in (os._exit, C.exit):
    # The peer sends before the fork, or after the close.
    for pause in (0, 0.6):
        # No bytes are left to read, so the process must not wait for a child.
        for behaviour in (child_exits_first, shut_before_fork, child_reads_the_end):
            run(behaviour, leave, b"", False, pause)
        for behaviour in (child_reads_the_rest, exit_closes):
            run(behaviour, leave, REST, True, pause)
