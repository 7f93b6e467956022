/* One unmodified TCP program for several stacks: latency of 64 bytes and throughput of 64 KiB
 * writes.
 *
 *   stream serve ADDRESS PORT CONNECTIONS
 *   stream visit ADDRESS PORT {ping|wait-ping|epoll-ping|bulk} COUNT
 *
 * The visitor prints us of half a round trip, or MB/s. Both ends of `ping` sleep in `recv`, those
 * of `wait-ping` in `poll`, and those of `epoll-ping` in `epoll_wait`.
 * The server compares every byte of the bulk. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PING = 64, PIECE = 65536 };
static unsigned char piece[PIECE], buffer[PIECE];
static char sleeps_in = 'p';
static int set;

static void fail(const char *call) {
    perror(call);
    exit(1);
}

static void put(int fd, const void *from, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t count = send(fd, (const char *)from + done, length - done, 0);
        if (count <= 0)
            fail("send");
        done += (size_t)count;
    }
}

/* Sleeps as the visitor's first byte says. */
static void prepare(int fd, unsigned char mode) {
    struct epoll_event event = {.events = EPOLLIN};
    sleeps_in = (char)mode;
    if (mode != 'e')
        return;
    set = epoll_create1(0);
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) || fcntl(fd, F_SETFL, O_NONBLOCK))
        fail("epoll");
}

static void until_readable(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct epoll_event event;
    if (sleeps_in == 'w' && poll(&one, 1, -1) != 1)
        fail("poll");
    if (sleeps_in == 'e' && epoll_wait(set, &event, 1, -1) != 1)
        fail("epoll_wait");
}

/* Returns 0 at the end of the peer's bytes. */
static int get(int fd, void *into, size_t length) {
    for (size_t done = 0; done < length;) {
        until_readable(fd);
        ssize_t count = recv(fd, (char *)into + done, length - done, 0);
        if (count < 0)
            fail("recv");
        if (count == 0)
            return 0;
        done += (size_t)count;
    }
    return 1;
}

static double now(void) {
    struct timespec it;
    clock_gettime(CLOCK_MONOTONIC, &it);
    return (double)it.tv_sec + (double)it.tv_nsec / 1e9;
}

static void serve_one(int fd) {
    unsigned char mode[8];
    if (!get(fd, mode, sizeof mode))
        return;
    if (mode[0] != 'b') {
        prepare(fd, mode[0]);
        while (get(fd, buffer, PING))
            put(fd, buffer, PING);
        return;
    }
    unsigned count;
    memcpy(&count, mode + 4, sizeof count);
    for (unsigned at = 0; at < count; at++)
        if (!get(fd, buffer, PIECE) || memcmp(buffer, piece, PIECE) != 0) {
            fprintf(stderr, "other bytes\n");
            exit(1);
        }
    put(fd, mode, 1);
    get(fd, mode, 1);
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((unsigned short)atoi(argv[3]))};
    inet_pton(AF_INET, argv[2], &to.sin_addr);
    for (int at = 0; at < PIECE; at++)
        piece[at] = (unsigned char)(at * 7 + at / 256);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0)
        fail("socket");
    if (argv[1][0] == 's') {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(fd, (struct sockaddr *)&to, sizeof to) || listen(fd, 8))
            fail("listen");
        puts("LISTENS");
        fflush(stdout);
        for (int left = atoi(argv[4]); left > 0; left--) {
            int peer = accept(fd, NULL, NULL);
            if (peer < 0)
                fail("accept");
            setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            serve_one(peer);
            close(peer);
        }
        return 0;
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    unsigned count = (unsigned)atoi(argv[5]);
    unsigned char mode[8] = {(unsigned char)argv[4][0]};
    memcpy(mode + 4, &count, sizeof count);
    put(fd, mode, sizeof mode);
    if (argv[4][0] != 'b') {
        prepare(fd, mode[0]);
        double begun = 0;
        unsigned warm = count / 10;
        for (unsigned at = 0; at < warm + count; at++) {
            if (at == warm)
                begun = now();
            put(fd, piece, PING);
            get(fd, buffer, PING);
        }
        printf("%.1f\n", (now() - begun) / count / 2 * 1e6);
    } else {
        double begun = now();
        for (unsigned at = 0; at < count; at++)
            put(fd, piece, PIECE);
        get(fd, buffer, 1);
        printf("%.1f\n", (double)count * PIECE / (now() - begun) / 1e6);
    }
    close(fd);
    return 0;
}
