"""Dozens of connections that children use leak no resource."""


def held():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def settled():
    """The resources that are held after ended connections had time to be freed."""
    seen, same = held(), 0
    while same < 20:
        time.sleep(0.05)
        now = held()
        seen, same = now, same + 1 if now == seen else 0
    return seen


def dial(client):
    client.sendall(b"bytes")
    assert receive(client, 5) == b"bytes"
    assert client.recv(1) == b""


def turn(number):
    server, client = connected(dial)
    child = forked(lambda: server.sendall(receive(server, 5)))
    if number % 2:
        server.close()
        ended(child)
    else:
        # The end of the child does not end the connection.
        ended(child)
        server.close()
    ended(client)


for number in range(4):
    turn(number)
before = settled()
for number in range(60):
    turn(number)


def nothing_is_left():
    return all(now <= then for now, then in zip(held(), before))


until(nothing_is_left, f"more than the {before} from before")
