"""Calls on small stacks, as those of coroutines and of threads in large numbers."""

import ctypes
import mmap
import socket

libc = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
# The stack of a thread may have four pages (`PTHREAD_STACK_MIN`), which is too small for SDP.
SIZE = 4 * PAGE if LOCAL else 8 * PAGE
CONTEXT = 1024


class SmallStack:
    """A small stack, below which no memory is accessible."""

    def __init__(self):
        libc.mmap.restype = ctypes.c_void_p
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        access = mmap.PROT_READ | mmap.PROT_WRITE
        whole = libc.mmap(None, ctypes.c_size_t(PAGE + SIZE), access, flags, -1, 0)
        self.stack = whole + PAGE
        assert libc.mprotect(ctypes.c_void_p(whole), ctypes.c_size_t(PAGE), 0) == 0

    def call(self, function, *arguments):
        """Calls a function of the C library on this stack."""
        here, there = (ctypes.create_string_buffer(CONTEXT) for _ in range(2))
        assert libc.getcontext(there) == 0
        words = ctypes.cast(there, ctypes.POINTER(ctypes.c_uint64))
        words[1] = ctypes.addressof(here)
        words[2], words[4] = self.stack, SIZE
        address = ctypes.cast(function, ctypes.c_void_p)
        libc.makecontext(there, address, len(arguments), *map(ctypes.c_void_p, arguments))
        assert libc.swapcontext(here, there) == 0


small = SmallStack()
room = ctypes.create_string_buffer(100)
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
small.call(libc.listen, listener.fileno(), 5)
service = listener.getsockname()

client = socket.socket()
family, port = socket.AF_INET.to_bytes(2, "little"), service[1].to_bytes(2, "big")
address = ctypes.create_string_buffer(family + port + socket.inet_aton(service[0]), 16)
small.call(libc.connect, client.fileno(), ctypes.addressof(address), 16)
assert client.getpeername() == service and is_offloaded(client)

# `accept` returns the lowest number that is free.
free = os.dup(0)
os.close(free)
small.call(libc.accept, listener.fileno(), 0, 0)
server = socket.socket(fileno=free)
assert server.getpeername() == client.getsockname()

word = ctypes.create_string_buffer(b"hello")
small.call(libc.send, client.fileno(), ctypes.addressof(word), 5, 0)
small.call(libc.recv, server.fileno(), ctypes.addressof(room), 100, 0)
assert room.value == b"hello"
client.sendall(b"discarded")
small.call(libc.recv, server.fileno(), ctypes.addressof(room), 9, socket.MSG_TRUNC)
small.call(libc.shutdown, server.fileno(), socket.SHUT_RDWR)
assert client.recv(1) == b""
small.call(libc.close, os.dup(server.fileno()))
