/*
 * A process that ends as soon as it has polled its last receive: the requests of its peer that it
 * has received succeed, before a request that it has not received fails.
 *
 *   verbs_ends destroys|exits
 *
 * Over TCP (DAT_VERBS=local=off), a request that the peer has not received at its end may succeed.
 */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs_kit.h"

enum { ROUNDS = 200, PAIRS = 4, WARM_UP = 10 };

/* The request for which the peer has no receive. */
static const uint64_t UNREAD = 15;

static struct ibv_qp *own[PAIRS];

/* Connects the queue pairs with those of the other process, to which `fd` leads. */
static void connect_to(int fd)
{
    uint32_t mine[PAIRS], theirs[PAIRS];
    char ready;
    open_device();
    for (int i = 0; i < PAIRS; i++) {
        own[i] = create_qp();
        mine[i] = own[i]->qp_num;
        CHECK(!to_init(own[i]));
    }
    CHECK(write(fd, mine, sizeof mine) == sizeof mine);
    CHECK(recv(fd, theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
    for (int i = 0; i < PAIRS; i++)
        CHECK(!to_rtr(own[i], theirs[i]) && !to_rts(own[i]));
    CHECK(write(fd, "", 1) == 1 && read(fd, &ready, 1) == 1);
}

/* Polls `count` successful completions. */
static void succeed(int count)
{
    for (int i = 0; i < count; i++) {
        struct ibv_wc wc = completion();
        if (wc.status) {
            printf("request %d of %d: %s\n", (int)wc.wr_id, i, ibv_wc_status_str(wc.status));
            exit(1);
        }
    }
}

/* Messages in both directions, after the first of which connections move to shared memory. */
static void warm_up(int sends_first)
{
    for (int turn = 0; turn < 2 * WARM_UP; turn++) {
        for (int i = 0; i < PAIRS; i++) {
            if (turn % 2 == sends_first)
                CHECK(!post_recv(own[i], 0, memory, 8));
            else
                CHECK(!post_send(own[i], 0, memory, 8, 0));
        }
        succeed(PAIRS);
    }
}

static void receive_and_end(int fd, int destroys)
{
    connect_to(fd);
    warm_up(0);
    for (int i = 0; i < PAIRS; i++)
        CHECK(!post_recv(own[i], i, memory + SIZE, 8));
    succeed(PAIRS);
    if (destroys) {
        for (int i = 0; i < PAIRS; i++)
            CHECK(!ibv_destroy_qp(own[i]));
        exit(0);
    }
    _exit(0);
}

static void send_all(int fd, int is_last)
{
    char end;
    connect_to(fd);
    warm_up(1);
    for (int i = 0; i < PAIRS; i++)
        CHECK(!post_send(own[i], i, memory, 8, 0));
    CHECK(!post_send(own[0], UNREAD, memory, 8, 0));
    /* The other process has ended. */
    CHECK(read(fd, &end, 1) == 0);
    succeed(PAIRS);
    if (is_last && !getenv("DAT_VERBS")) {
        struct ibv_wc wc = completion();
        CHECK(wc.wr_id == UNREAD && wc.status == IBV_WC_RETRY_EXC_ERR);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(argc == 2);
    for (int round = 0; round < ROUNDS; round++) {
        int fds[2], status[2];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
        pid_t receiver = fork();
        if (!receiver) {
            close(fds[1]);
            receive_and_end(fds[0], !strcmp(argv[1], "destroys"));
        }
        close(fds[0]);
        pid_t sender = fork();
        if (!sender)
            send_all(fds[1], round + 1 == ROUNDS);
        CHECK(receiver > 0 && sender > 0);
        CHECK(waitpid(receiver, &status[0], 0) == receiver);
        CHECK(waitpid(sender, &status[1], 0) == sender);
        if (status[0] || status[1]) {
            printf("round %d: receiver %d, sender %d\n", round, status[0], status[1]);
            return 1;
        }
        close(fds[1]);
    }
    printf("%s ok\n", argv[1]);
    return 0;
}
