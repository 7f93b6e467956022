/*
 * A device, its objects and two queue pairs of one process, for programs of calls of libibverbs.
 */
#ifndef VERBS_KIT_H
#define VERBS_KIT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A function that some programs do not call. */
#define KIT static __attribute__((unused))

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s (errno %d)\n", __LINE__, #condition, errno);                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A case of a program. */
struct verbs_case {
    const char *name;
    void (*run)(void);
};

enum { DEPTH = 16, SIZE = 4096, SECONDS = 120 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qps[2];
static union ibv_gid gid;
/* Of queue pairs that enter INIT. */
static unsigned peer_access =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
/* Of queue pairs that enter RTR and RTS. */
static uint8_t min_rnr_timer = 12, rnr_retry = 7;
static char memory[2 * SIZE] __attribute__((aligned(64)));

KIT void open_device(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0 && !list[count]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    CHECK(!ibv_query_gid(context, 1, 0, &gid));
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    CHECK(pd && channel);
    cq = ibv_create_cq(context, 4 * DEPTH, &cq, channel, 0);
    CHECK(cq && cq->cqe >= 4 * DEPTH);
    mr = ibv_reg_mr(pd, memory, sizeof memory,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(mr);
}

KIT struct ibv_qp *create_qp(void)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = { .max_send_wr = DEPTH,
                 .max_recv_wr = DEPTH,
                 .max_send_sge = 2,
                 .max_recv_sge = 2,
                 .max_inline_data = 64 },
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && qp->qp_num && qp->state == IBV_QPS_RESET && init.cap.max_inline_data >= 64);
    return qp;
}

KIT int to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
                                .port_num = 1,
                                .qp_access_flags = peer_access };
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

KIT int to_rtr(struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = min_rnr_timer,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
    };
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

KIT int to_rts(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry,
        .max_rd_atomic = 4,
    };
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

KIT int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = { .qp_state = state };
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

KIT void connect_pair(void)
{
    qps[0] = create_qp();
    qps[1] = create_qp();
    for (int i = 0; i < 2; i++) {
        CHECK(!to_init(qps[i]));
        CHECK(!to_rtr(qps[i], qps[!i]->qp_num));
        CHECK(!to_rts(qps[i]));
    }
}

KIT int post_recv(struct ibv_qp *qp, uint64_t id, char *at, uint32_t length)
{
    struct ibv_sge sge = { (uintptr_t)at, length, mr->lkey };
    struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
    return ibv_post_recv(qp, &wr, &bad);
}

KIT struct ibv_send_wr request(uint64_t id, enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
    return (struct ibv_send_wr){ .wr_id = id,
                                 .sg_list = sge,
                                 .num_sge = 1,
                                 .opcode = opcode,
                                 .send_flags = IBV_SEND_SIGNALED };
}

KIT int post_send(struct ibv_qp *qp, uint64_t id, char *at, uint32_t length, unsigned flags)
{
    struct ibv_sge sge = { (uintptr_t)at, length, mr->lkey };
    struct ibv_send_wr wr = request(id, IBV_WR_SEND, &sge), *bad;
    wr.send_flags |= flags;
    return ibv_post_send(qp, &wr, &bad);
}

/* Polls one completion, at the latest after SECONDS. */
KIT struct ibv_wc completion(void)
{
    struct ibv_wc wc = { 0 };
    time_t end = time(NULL) + SECONDS;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        CHECK(time(NULL) < end);
    CHECK(count == 1);
    return wc;
}

/* Polls the completion of each of `count` requests, in any order, into wcs[wr_id]. */
KIT void completions(struct ibv_wc *wcs, int count)
{
    for (int i = 0; i < count; i++) {
        struct ibv_wc wc = completion();
        CHECK(wc.wr_id < DEPTH);
        wcs[wc.wr_id] = wc;
    }
}

KIT void close_device(void)
{
    for (int i = 0; i < 2; i++)
        CHECK(!qps[i] || !ibv_destroy_qp(qps[i]));
    CHECK(!ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dereg_mr(mr));
    CHECK(!ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
}

KIT int datagrams_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1, .qkey = 0x1234 };
    int mask = IBV_QP_STATE;
    if (state == IBV_QPS_INIT)
        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    if (state == IBV_QPS_RTS)
        mask |= IBV_QP_SQ_PSN;
    return ibv_modify_qp(qp, &attr, mask);
}

/* Runs the case that the program was called with. */
KIT int run_case(int argc, char **argv, const struct verbs_case *cases, size_t count)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; argc == 2 && i < count; i++) {
        if (strcmp(cases[i].name, argv[1]))
            continue;
        open_device();
        cases[i].run();
        close_device();
        printf("%s ok\n", argv[1]);
        return 0;
    }
    printf("no such case\n");
    return 2;
}

#endif
