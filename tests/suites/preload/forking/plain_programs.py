"""Programs without the library read and write bytes: inetd, CGI."""

TEXT = os.urandom(300000)
PLAIN = {"PATH": os.environ["PATH"]}


def dial(client):
    sender = threading.Thread(target=lambda: (client.sendall(TEXT), client.shutdown(1)))
    sender.start()
    got = bytearray()
    while chunk := client.recv(65536):
        got += chunk
    sender.join()
    assert got == TEXT, (len(got), len(TEXT))


def by_exec(peer):
    for number in (0, 1):
        os.dup2(peer.fileno(), number)
    os.closerange(3, 100)
    os.execvpe("cat", ["cat"], PLAIN)


def by_a_list(peer):
    libc = ctypes.CDLL(None)
    end = ctypes.c_char_p(None)
    for number in (0, 1):
        os.dup2(peer.fileno(), number)
    # More arguments than fit into registers.
    words = [b"/bin/sh", b"sh", b"-c", b'test "$*" = "c d e f" && exec cat', *b"a c d e f".split()]
    environment = (ctypes.c_char_p * 2)(b"PATH=" + os.fsencode(os.environ["PATH"]), None)
    libc.execle(*map(ctypes.c_char_p, words), end, environment)


def by_subprocess(peer):
    subprocess.run(["cat"], stdin=peer, stdout=peer, env=PLAIN, check=True)


def by_kept_number(peer):
    os.set_inheritable(peer.fileno(), True)
    command = f"cat <&{peer.fileno()} >&{peer.fileno()}"
    subprocess.run(["sh", "-c", command], pass_fds=[peer.fileno()], env=PLAIN, check=True)


def by_spawn(peer):
    actions = [(os.POSIX_SPAWN_DUP2, peer.fileno(), number) for number in (0, 1)]
    cat = os.posix_spawnp("cat", ["cat"], PLAIN, file_actions=actions)
    ended(cat)


def by_the_library_of_c(peer):
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    number = os.dup(peer.fileno())
    stream = ctypes.c_void_p(libc.fdopen(number, b"r+"))
    room = ctypes.create_string_buffer(4096)
    libc.fread.restype = ctypes.c_size_t
    got = bytearray()
    while count := libc.fread(room, 1, 4096, stream):
        got += room.raw[:count]
    assert got == TEXT, len(got)
    peer.sendall(got)
    libc.fclose(stream)


def through_system(peer):
    os.set_inheritable(peer.fileno(), True)
    assert os.system(f"cat <&{peer.fileno()} >&{peer.fileno()}") == 0


# When these programs start, the connection's buffers hold as many bytes as fit.
LATE = (by_subprocess, by_spawn)
WAYS = (by_subprocess, by_kept_number, by_spawn, by_the_library_of_c, through_system)


def await_end(peer):
    """Waits for the end of the client's bytes before a program reads them. A protocol without room for
    all bytes does not show the end, and the wait then times out."""
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    poll.poll(500)


for way in (by_exec, by_a_list, *WAYS):
    # Shown if the script fails.
    print(way.__name__, flush=True)
    server, client = connected(dial)
    child = forked(way, server)
    server.close()
    ended(child, client)
    if way in WAYS:
        # The exec is not preceded by a fork.
        print("the same without a fork", flush=True)
        server, client = connected(dial)
        if way in LATE:
            await_end(server)
        way(server)
        server.close()
        ended(client)
