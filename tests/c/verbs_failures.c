/*
 * Requests that fail, and the events of their failures, through the C interface of libibverbs.
 *
 *   verbs_failures CASE
 */
#include "verbs_kit.h"

/* The next asynchronous event, which must be of this type. */
static struct ibv_async_event next_event(enum ibv_event_type type)
{
    struct ibv_async_event event;
    struct pollfd fd = { context->async_fd, POLLIN, 0 };
    CHECK(poll(&fd, 1, SECONDS * 1000) == 1);
    CHECK(!ibv_get_async_event(context, &event));
    ibv_ack_async_event(&event);
    CHECK(event.event_type == type);
    return event;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return attr.qp_state;
}

/* Exchanges a few messages. After the first ones the connection moves to shared memory. */
static void exchange(int count)
{
    struct ibv_wc wcs[DEPTH];
    for (int i = 0; i < count; i++) {
        for (int from = 0; from < 2; from++) {
            CHECK(!post_recv(qps[!from], 0, memory + SIZE, 8));
            CHECK(!post_send(qps[from], 1, memory, 8, 0));
            completions(wcs, 2);
            CHECK(!wcs[0].status && !wcs[1].status);
        }
    }
}

/* Connects the queue pairs anew, after a failure. */
static void connect_again(void)
{
    for (int i = 0; i < 2; i++)
        CHECK(!to_state(qps[i], IBV_QPS_RESET) && !to_init(qps[i]));
    for (int i = 0; i < 2; i++)
        CHECK(!to_rtr(qps[i], qps[!i]->qp_num) && !to_rts(qps[i]));
}

/* Runs `fails` on a connection that has just begun, and on one in shared memory. */
static void on_each_carrier(void (*fails)(void))
{
    connect_pair();
    fails();
    connect_again();
    exchange(40);
    fails();
}

/* Polls the completions of both ends: that of the failed request and those that it flushes. */
static void expect(uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = completion();
    CHECK(wc.wr_id == id);
    if (wc.status != status) {
        printf("%s instead of %s\n", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
        exit(1);
    }
}

static void no_receive(void)
{
    CHECK(!post_send(qps[0], 1, memory, 8, 0) && !post_send(qps[0], 2, memory, 8, 0));
    expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
    expect(2, IBV_WC_WR_FLUSH_ERR);
    CHECK(state_of(qps[0]) == IBV_QPS_ERR && state_of(qps[1]) == IBV_QPS_RTS);
}

static void receiver_not_ready(void)
{
    rnr_retry = 3;
    on_each_carrier(no_receive);
    rnr_retry = 0;
    connect_again();
    no_receive();
}

/* A message waits for ever with rnr_retry 7. */
static void receiver_late(void)
{
    struct ibv_wc wcs[DEPTH];
    struct timespec pause = { 0, 50 * 1000 * 1000 };
    min_rnr_timer = 1;
    connect_pair();
    for (int round = 0; round < 3; round++) {
        CHECK(!post_send(qps[0], 1, memory, 8, 0));
        nanosleep(&pause, NULL);
        CHECK(!ibv_poll_cq(cq, 1, wcs));
        /* The other direction goes on. */
        CHECK(!post_recv(qps[0], 2, memory, 8) && !post_send(qps[1], 3, memory + SIZE, 8, 0));
        completions(wcs, 2);
        CHECK(!wcs[2].status && !wcs[3].status);
        CHECK(!post_recv(qps[1], 0, memory + SIZE, 8));
        completions(wcs, 2);
        CHECK(!wcs[0].status && !wcs[1].status);
        exchange(20);
    }
}

static void short_receive(void)
{
    struct ibv_wc wcs[DEPTH];
    CHECK(!post_recv(qps[1], 0, memory + SIZE, 8) && !post_recv(qps[1], 2, memory + SIZE, 8));
    CHECK(!post_send(qps[0], 1, memory, 16, 0));
    completions(wcs, 3);
    CHECK(wcs[0].status == IBV_WC_LOC_LEN_ERR && wcs[2].status == IBV_WC_WR_FLUSH_ERR);
    CHECK(wcs[1].status == IBV_WC_REM_INV_REQ_ERR);
}

static void messages_longer_than_their_receives(void)
{
    on_each_carrier(short_receive);
}

static void bad_receive(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_sge sge = { (uintptr_t)memory + SIZE, 8, mr->lkey ^ 0x5a00 };
    struct ibv_recv_wr wr = { .wr_id = 0, .sg_list = &sge, .num_sge = 1 }, *bad;
    CHECK(!ibv_post_recv(qps[1], &wr, &bad) && !post_send(qps[0], 1, memory, 8, 0));
    completions(wcs, 2);
    CHECK(wcs[0].status == IBV_WC_LOC_PROT_ERR && wcs[1].status == IBV_WC_REM_OP_ERR);
}

static void receives_without_memory(void)
{
    on_each_carrier(bad_receive);
}

static void bad_source(void)
{
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey ^ 0x5a00 };
    struct ibv_send_wr wr = request(1, IBV_WR_SEND, &sge), *bad;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    expect(1, IBV_WC_LOC_PROT_ERR);
    CHECK(state_of(qps[0]) == IBV_QPS_ERR);
}

static void sends_without_memory(void)
{
    on_each_carrier(bad_source);
}

static void bad_write(void)
{
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge), *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)(memory + SIZE);
    wr.wr.rdma.rkey = mr->rkey ^ 0x5a00;
    CHECK(!post_recv(qps[1], 2, memory + SIZE, 8) && !ibv_post_send(qps[0], &wr, &bad));
    struct ibv_wc wcs[DEPTH];
    completions(wcs, 2);
    CHECK(wcs[1].status == IBV_WC_REM_ACCESS_ERR && wcs[2].status == IBV_WC_WR_FLUSH_ERR);
    CHECK(next_event(IBV_EVENT_QP_ACCESS_ERR).element.qp == qps[1]);
    CHECK(state_of(qps[1]) == IBV_QPS_ERR);
}

static void writes_to_other_memory(void)
{
    on_each_carrier(bad_write);
}

static void denied_atomic(void)
{
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge), *bad;
    wr.wr.atomic.remote_addr = (uintptr_t)(memory + SIZE);
    wr.wr.atomic.rkey = mr->rkey;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    expect(1, IBV_WC_REM_ACCESS_ERR);
    CHECK(next_event(IBV_EVENT_QP_ACCESS_ERR).element.qp == qps[1]);
}

static void denied_write(void)
{
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge), *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)(memory + SIZE);
    wr.wr.rdma.rkey = mr->rkey;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    expect(1, IBV_WC_REM_ACCESS_ERR);
    CHECK(next_event(IBV_EVENT_QP_ACCESS_ERR).element.qp == qps[1]);
}

static void rights_of_queue_pairs(void)
{
    peer_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    on_each_carrier(denied_atomic);
    peer_access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    connect_again();
    denied_write();
    connect_again();
    exchange(40);
    denied_write();
}

static int unreliable_to(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = state,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
    };
    int mask = state == IBV_QPS_RTS
                   ? IBV_QP_STATE | IBV_QP_SQ_PSN
                   : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    return ibv_modify_qp(qp, &attr, mask);
}

static void unreliable_connections(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_qp_init_attr init = { .send_cq = cq,
                                     .recv_cq = cq,
                                     .cap = { DEPTH, DEPTH, 1, 1, 64 },
                                     .qp_type = IBV_QPT_UC };
    for (int i = 0; i < 2; i++) {
        qps[i] = ibv_create_qp(pd, &init);
        CHECK(qps[i] && !to_init(qps[i]) && to_rtr(qps[i], 1) == EINVAL);
    }
    for (int i = 0; i < 2; i++)
        CHECK(!unreliable_to(qps[i], IBV_QPS_RTR, qps[!i]->qp_num) &&
              !unreliable_to(qps[i], IBV_QPS_RTS, 0));
    exchange(40);
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge), *bad;
    wr.imm_data = htonl(5);
    wr.wr.rdma.remote_addr = (uintptr_t)(memory + SIZE);
    wr.wr.rdma.rkey = mr->rkey;
    CHECK(!post_recv(qps[1], 0, memory + SIZE, 8) && !ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 2);
    CHECK(!wcs[0].status && !wcs[1].status && wcs[0].imm_data == htonl(5));
    wr.opcode = IBV_WR_RDMA_READ;
    CHECK(ibv_post_send(qps[0], &wr, &bad) == EINVAL && bad == &wr);
}

/* Receives of datagrams come from a shared queue, whose limit is reported. */
static void shared_receives_of_datagrams(void)
{
    enum { GRH = sizeof(struct ibv_grh) };
    struct ibv_wc wc;
    struct ibv_cq *of;
    void *cq_context;
    struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    struct ibv_ah_attr vector = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
    struct ibv_ah *ah = ibv_create_ah(pd, &vector);
    CHECK(srq && ah);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = { .send_cq = cq,
                                         .recv_cq = cq,
                                         .srq = i ? srq : NULL,
                                         .cap = { DEPTH, DEPTH, 1, 1, 64 },
                                         .qp_type = IBV_QPT_UD };
        qps[i] = ibv_create_qp(pd, &init);
        CHECK(qps[i] && !datagrams_to(qps[i], IBV_QPS_INIT));
        CHECK(!datagrams_to(qps[i], IBV_QPS_RTR) && !datagrams_to(qps[i], IBV_QPS_RTS));
    }
    CHECK(ibv_destroy_srq(srq) == EBUSY && post_recv(qps[1], 9, memory, 64) == EINVAL);
    struct ibv_sge sge = { (uintptr_t)memory + SIZE, 64, mr->lkey };
    struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
    struct ibv_sge from = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(0, IBV_WR_SEND, &from), *bad;
    wr.send_flags = 0;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qps[1]->qp_num;
    wr.wr.ud.remote_qkey = 0x1234;
    struct ibv_srq_attr limit = { .srq_limit = 1 };
    CHECK(!ibv_post_srq_recv(srq, &recv, &bad_recv));
    CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) && !ibv_post_send(qps[0], &wr, &bad));
    wc = completion();
    CHECK(!wc.status && wc.wr_id == 1 && wc.byte_len == GRH + 8 && wc.qp_num == qps[1]->qp_num);
    CHECK(next_event(IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq);
    /* A program that sleeps is woken, although the message is older than its receive. */
    CHECK(!ibv_req_notify_cq(cq, 0) && !ibv_post_send(qps[0], &wr, &bad));
    CHECK(!ibv_post_srq_recv(srq, &recv, &bad_recv));
    CHECK(!ibv_get_cq_event(channel, &of, &cq_context) && of == cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(!completion().status);
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_destroy_qp(qps[i]));
    qps[0] = qps[1] = NULL;
    CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_ah(ah));
}

static const struct verbs_case cases[] = {
    { "receiver_not_ready", receiver_not_ready },
    { "receiver_late", receiver_late },
    { "messages_longer_than_their_receives", messages_longer_than_their_receives },
    { "receives_without_memory", receives_without_memory },
    { "sends_without_memory", sends_without_memory },
    { "writes_to_other_memory", writes_to_other_memory },
    { "rights_of_queue_pairs", rights_of_queue_pairs },
    { "unreliable_connections", unreliable_connections },
    { "shared_receives_of_datagrams", shared_receives_of_datagrams },
};

int main(int argc, char **argv)
{
    return run_case(argc, argv, cases, sizeof cases / sizeof *cases);
}
