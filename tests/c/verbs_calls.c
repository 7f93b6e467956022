/*
 * Two queue pairs of one process, through the C interface of libibverbs.
 *
 *   verbs_calls CASE
 *
 * Each case is a function below. The program prints CASE ok and exits with 0, or prints the check
 * that failed and exits with 1.
 */
#include "verbs_kit.h"

static void device(void)
{
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;
    union ibv_gid none;
    uint16_t pkey;
    CHECK(!ibv_query_device(context, &attr) && attr.phys_port_cnt == 1 && attr.max_qp > 0);
    CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
    CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len == 1);
    CHECK(ibv_query_port(context, 2, &port) == EINVAL);
    CHECK(!ibv_query_gid_ex(context, 1, 0, &entry, 0));
    CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(&entry.gid, &gid, sizeof gid));
    CHECK(ibv_query_gid(context, 1, 1, &none) == -1);
    CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && pkey == htons(0xffff));
    struct pollfd fds[2] = { { context->async_fd, POLLIN, 0 }, { context->cmd_fd, POLLIN, 0 } };
    CHECK(poll(fds, 2, 0) == 0);
}

static void unsupported(void)
{
    struct ibv_device_attr_ex extended;
    struct ibv_ah_attr ah = { .port_num = 1 };
    struct ibv_cq_init_attr_ex cq_attr = { .cqe = 1,
                                           .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET };
    struct ibv_qp_init_attr_ex qp_attr = { .send_cq = cq,
                                           .recv_cq = cq,
                                           .qp_type = IBV_QPT_RC,
                                           .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                           .pd = pd,
                                           .send_ops_flags = IBV_QP_EX_WITH_TSO };
    CHECK(!ibv_query_device_ex(context, NULL, &extended) && !extended.odp_caps.general_caps);
    CHECK(extended.device_cap_flags_ex == extended.orig_attr.device_cap_flags);
    CHECK(!ibv_create_qp(pd, &init) && errno == EOPNOTSUPP);
    CHECK(!ibv_create_qp_ex(context, &qp_attr) && errno == EOPNOTSUPP);
    CHECK(!ibv_create_ah(pd, &ah) && errno == EINVAL);
    CHECK(!ibv_alloc_mw(pd, 7) && errno == EINVAL);
    CHECK(!ibv_create_cq_ex(context, &cq_attr) && errno == EOPNOTSUPP);
    CHECK(!ibv_reg_mr(pd, memory, 64, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
    CHECK(!ibv_reg_mr(pd, memory, 0, 0) && errno == EINVAL);
    CHECK(!ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
}

static void states(void)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    qps[0] = create_qp();
    errno = 0;
    CHECK(to_rts(qps[0]) == EINVAL && errno == EINVAL && to_rtr(qps[0], 1) == EINVAL);
    CHECK(to_state(qps[0], IBV_QPS_INIT) == EINVAL);
    CHECK(post_recv(qps[0], 0, memory, 8) == EINVAL);
    CHECK(!to_init(qps[0]) && qps[0]->state == IBV_QPS_INIT);
    CHECK(!post_recv(qps[0], 1, memory, 8));
    CHECK(post_send(qps[0], 2, memory, 8, 0) == EINVAL);
    CHECK(!to_state(qps[0], IBV_QPS_ERR));
    CHECK(completion().status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!post_send(qps[0], 3, memory, 8, 0));
    struct ibv_wc wc = completion();
    CHECK(wc.wr_id == 3 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == qps[0]->qp_num);
    CHECK(!post_recv(qps[0], 4, memory, 8));
    CHECK(!to_state(qps[0], IBV_QPS_RESET) && !ibv_poll_cq(cq, 1, &wc));
    CHECK(!to_init(qps[0]) && !to_rtr(qps[0], 0x123456) && !to_rts(qps[0]));
    CHECK(!ibv_query_qp(qps[0], &attr, IBV_QP_STATE, &init));
    CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == 0x123456 && attr.timeout == 14);
    CHECK(attr.path_mtu == IBV_MTU_1024 && init.cap.max_send_wr == DEPTH && init.send_cq == cq);
}

static void transfer(void)
{
    struct ibv_wc wcs[DEPTH];
    char *far = memory + SIZE;
    connect_pair();
    strcpy(memory, "sent");
    CHECK(!post_recv(qps[1], 0, far, SIZE));
    /* Posted before the connection is established, and overwritten after the post. */
    CHECK(!post_send(qps[0], 1, memory, 5, IBV_SEND_INLINE));
    memset(memory, 'x', 5);
    completions(wcs, 2);
    CHECK(!wcs[0].status && !wcs[1].status && wcs[0].opcode == IBV_WC_RECV);
    CHECK(wcs[0].byte_len == 5 && wcs[0].qp_num == qps[1]->qp_num && !strcmp(far, "sent"));

    struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
    struct ibv_send_wr wr = request(2, IBV_WR_RDMA_WRITE, &sge), *bad;
    struct ibv_send_wr read = request(3, IBV_WR_RDMA_READ, &sge);
    memset(memory, 'w', SIZE);
    wr.wr.rdma.remote_addr = read.wr.rdma.remote_addr = (uintptr_t)far;
    wr.wr.rdma.rkey = read.wr.rdma.rkey = mr->rkey;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(!wcs[2].status);
    /* The peer places the payload later than the requester completes it. */
    for (time_t end = time(NULL) + SECONDS; *(volatile char *)(far + SIZE - 1) != 'w';) {
        struct ibv_wc none;
        CHECK(time(NULL) < end && !ibv_poll_cq(cq, 1, &none));
    }
    memset(far, 'r', SIZE);
    CHECK(!ibv_post_send(qps[0], &read, &bad));
    completions(wcs, 1);
    CHECK(!wcs[3].status && wcs[3].opcode == IBV_WC_RDMA_READ && memory[SIZE - 1] == 'r');

    CHECK(!post_recv(qps[1], 4, far + 64, 8));
    wr.wr_id = 5;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htonl(0x01020304);
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 2);
    CHECK(!wcs[4].status && wcs[4].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(wcs[4].byte_len == SIZE);
    CHECK(wcs[4].wc_flags & IBV_WC_WITH_IMM && wcs[4].imm_data == htonl(0x01020304));
}

static void atomics(void)
{
    struct ibv_wc wcs[DEPTH];
    uint64_t *result = (uint64_t *)memory, *far = (uint64_t *)(memory + SIZE);
    struct ibv_sge sge = { (uintptr_t)result, 8, mr->lkey };
    struct ibv_send_wr wr = request(0, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge), *bad;
    connect_pair();
    *far = 40;
    wr.wr.atomic.remote_addr = (uintptr_t)far;
    wr.wr.atomic.rkey = mr->rkey;
    wr.wr.atomic.compare_add = 2;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(!wcs[0].status && wcs[0].opcode == IBV_WC_FETCH_ADD && *result == 40 && *far == 42);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 42;
    wr.wr.atomic.swap = 7;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(!wcs[0].status && wcs[0].opcode == IBV_WC_COMP_SWAP && *result == 42 && *far == 7);
}

static void events(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_cq *of;
    void *cq_context;
    connect_pair();
    CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
    CHECK(ibv_get_cq_event(channel, &of, &cq_context) == -1 && errno == EAGAIN);
    CHECK(!fcntl(channel->fd, F_SETFL, 0));
    CHECK(!ibv_req_notify_cq(cq, 0));
    CHECK(!post_recv(qps[1], 0, memory + SIZE, 8) && !post_send(qps[0], 1, memory, 8, 0));
    CHECK(!ibv_get_cq_event(channel, &of, &cq_context) && of == cq && cq_context == &cq);
    completions(wcs, 2);
    CHECK(!wcs[0].status && !wcs[1].status);
    struct pollfd fd = { channel->fd, POLLIN, 0 };
    CHECK(poll(&fd, 1, 0) == 0);
    ibv_ack_cq_events(cq, 1);
}

static void peer_gone(void)
{
    struct ibv_wc wc;
    connect_pair();
    CHECK(!post_recv(qps[0], 0, memory, 8) && !post_recv(qps[1], 1, memory + SIZE, 8));
    CHECK(!post_send(qps[0], 2, memory, 8, 0));
    for (int i = 0; i < 2; i++)
        CHECK(!completion().status);
    CHECK(!ibv_destroy_qp(qps[1]));
    qps[1] = NULL;
    /* The receive stays posted until a send fails. */
    struct timespec pause = { 0, 50 * 1000 * 1000 };
    nanosleep(&pause, NULL);
    CHECK(!ibv_poll_cq(cq, 1, &wc));
    /* A send may be on its way when the peer ends; a later one fails. */
    do {
        CHECK(!post_send(qps[0], 3, memory, 8, 0));
        wc = completion();
        CHECK(wc.wr_id == 3);
    } while (!wc.status);
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
    wc = completion();
    CHECK(wc.wr_id == 0 && wc.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!post_send(qps[0], 4, memory, 8, 0));
    wc = completion();
    CHECK(wc.wr_id == 4 && wc.status == IBV_WC_WR_FLUSH_ERR);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qps[0], &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
}

static void refused_access(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(0, IBV_WR_RDMA_READ, &sge), *bad;
    connect_pair();
    wr.wr.rdma.remote_addr = (uintptr_t)(memory + SIZE);
    wr.wr.rdma.rkey = mr->rkey ^ 0x5a00;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(wcs[0].status == IBV_WC_REM_ACCESS_ERR);
}

static void children(void)
{
    connect_pair();
    CHECK(ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
    uint32_t number = qps[0]->qp_num;
    CHECK(!ibv_destroy_qp(qps[0]));
    qps[0] = create_qp();
    CHECK(qps[0]->qp_num != number);
}

static void reused(void)
{
    struct ibv_wc wcs[DEPTH];
    connect_pair();
    for (int round = 0; round < 20; round++) {
        CHECK(!post_recv(qps[1], 0, memory + SIZE, 8) && !post_send(qps[0], 1, memory, 8, 0));
        completions(wcs, 2);
        CHECK(!wcs[0].status && !wcs[1].status);
        for (int i = 0; i < 2; i++)
            CHECK(!to_state(qps[i], IBV_QPS_RESET) && !to_init(qps[i]));
        for (int i = 0; i < 2; i++)
            CHECK(!to_rtr(qps[i], qps[!i]->qp_num) && !to_rts(qps[i]));
    }
}

/* A queue pair that is connected to itself. */
static void own_peer(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr, *bad;
    qps[0] = create_qp();
    for (int round = 0; round < 3; round++) {
        CHECK(!to_init(qps[0]) && !post_recv(qps[0], 0, memory + SIZE, 8));
        CHECK(!to_rtr(qps[0], qps[0]->qp_num) && !to_rts(qps[0]));
        memcpy(memory, "itself!", 8);
        memset(memory + SIZE, 0, 64);
        CHECK(!post_send(qps[0], 1, memory, 8, round == 1 ? IBV_SEND_INLINE : 0));
        completions(wcs, 2);
        CHECK(!wcs[0].status && wcs[0].opcode == IBV_WC_RECV && wcs[0].byte_len == 8);
        CHECK(!wcs[1].status && wcs[1].opcode == IBV_WC_SEND);
        CHECK(wcs[0].qp_num == qps[0]->qp_num && !memcmp(memory + SIZE, "itself!", 8));
        for (int write = 0; write < 2; write++) {
            wr = request(2, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge);
            wr.wr.rdma.remote_addr = (uintptr_t)(memory + SIZE + 8 * write);
            wr.wr.rdma.rkey = mr->rkey;
            if (!write)
                memset(memory, 0, 8);
            CHECK(!ibv_post_send(qps[0], &wr, &bad));
            completions(wcs, 1);
            CHECK(!wcs[2].status && !memcmp(memory, "itself!", 8));
        }
        CHECK(!memcmp(memory + SIZE + 8, "itself!", 8));
        /* The requests and receives of both ends are flushed. */
        CHECK(!post_recv(qps[0], 3, memory + SIZE, 8) && !to_state(qps[0], IBV_QPS_ERR));
        CHECK(!post_send(qps[0], 4, memory, 8, 0));
        completions(wcs, 2);
        CHECK(wcs[3].status == IBV_WC_WR_FLUSH_ERR && wcs[4].status == IBV_WC_WR_FLUSH_ERR);
        CHECK(!to_state(qps[0], IBV_QPS_RESET));
    }
    /* Later it may have another peer. */
    qps[1] = create_qp();
    for (int i = 0; i < 2; i++)
        CHECK(!to_init(qps[i]) && !to_rtr(qps[i], qps[!i]->qp_num) && !to_rts(qps[i]));
    CHECK(!post_recv(qps[1], 0, memory + SIZE, 8) && !post_send(qps[0], 1, memory, 8, 0));
    completions(wcs, 2);
    CHECK(!wcs[0].status && !wcs[1].status && wcs[0].qp_num == qps[1]->qp_num);
}

/* Registers the second half of the memory, whose windows the peer may use. */
static struct ibv_mr *bindable(void)
{
    struct ibv_mr *region = ibv_reg_mr(pd, memory + SIZE, SIZE,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    CHECK(region);
    return region;
}

/* Reads 8 bytes of the second half of the memory through `rkey`. Returns the status. */
static enum ibv_wc_status read_through(uint32_t rkey)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(9, IBV_WR_RDMA_READ, &sge), *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)(memory + SIZE);
    wr.wr.rdma.rkey = rkey;
    CHECK(!ibv_post_send(qps[1], &wr, &bad));
    completions(wcs, 1);
    return wcs[9].status;
}

static void immediate(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_sge sge = { (uintptr_t)memory, 32, mr->lkey };
    struct ibv_send_wr wr = request(0, IBV_WR_SEND_WITH_IMM, &sge), *bad;
    connect_pair();
    wr.imm_data = htonl(0x01020304);
    CHECK(!post_recv(qps[1], 1, memory + SIZE, SIZE) && !ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 2);
    CHECK(!wcs[0].status && wcs[0].opcode == IBV_WC_SEND);
    CHECK(!wcs[1].status && wcs[1].opcode == IBV_WC_RECV && wcs[1].byte_len == 32);
    CHECK(wcs[1].wc_flags == IBV_WC_WITH_IMM && wcs[1].imm_data == htonl(0x01020304));
}

static void windows_of_type_1(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_mr *region = bindable();
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mw && mw->pd == pd && mw->type == IBV_MW_TYPE_1);
    struct ibv_mw_bind bind = { .wr_id = 3,
                                .send_flags = IBV_SEND_SIGNALED,
                                .bind_info = { .mr = mr,
                                               .addr = (uintptr_t)(memory + SIZE),
                                               .length = 64,
                                               .mw_access_flags = IBV_ACCESS_REMOTE_READ |
                                                                  IBV_ACCESS_LOCAL_WRITE } };
    connect_pair();
    CHECK(ibv_bind_mw(qps[0], mw, &bind) == EINVAL); /* without IBV_ACCESS_MW_BIND */
    bind.bind_info.mr = region;
    for (uint32_t former = 0, i = 0; i < 3; i++, former = mw->rkey) {
        CHECK(!ibv_bind_mw(qps[0], mw, &bind) && mw->rkey != former);
        completions(wcs, 1);
        CHECK(!wcs[3].status && wcs[3].opcode == IBV_WC_BIND_MW);
        CHECK(read_through(mw->rkey) == IBV_WC_SUCCESS);
    }
    /* The end of the region is the end of its windows. */
    CHECK(!ibv_dereg_mr(region));
    CHECK(read_through(mw->rkey) == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_dealloc_mw(mw));
}

static void windows_of_type_2(void)
{
    struct ibv_wc wcs[DEPTH];
    struct ibv_mr *region = bindable();
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(mw);
    struct ibv_send_wr wr = request(0, IBV_WR_BIND_MW, NULL), *bad;
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr send = request(1, IBV_WR_SEND_WITH_INV, &sge);
    wr.num_sge = 0;
    wr.bind_mw.mw = mw;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = region,
                                                      .addr = (uintptr_t)(memory + SIZE),
                                                      .length = 64,
                                                      .mw_access_flags = IBV_ACCESS_REMOTE_READ };
    connect_pair();
    wr.bind_mw.rkey = mw->rkey + 0x100;
    CHECK(ibv_post_send(qps[0], &wr, &bad) == EINVAL && bad == &wr);
    for (int i = 0; i < 3; i++) {
        uint32_t rkey = mw->rkey = wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
        CHECK(!ibv_post_send(qps[0], &wr, &bad));
        completions(wcs, 1);
        CHECK(!wcs[0].status && wcs[0].opcode == IBV_WC_BIND_MW);
        CHECK(read_through(rkey) == IBV_WC_SUCCESS);
        /* The peer invalidates the window, and then this end does. */
        send.opcode = i % 2 ? IBV_WR_LOCAL_INV : IBV_WR_SEND_WITH_INV;
        send.invalidate_rkey = rkey;
        CHECK(i % 2 || !post_recv(qps[0], 2, memory + SIZE, 8));
        CHECK(!ibv_post_send(qps[i % 2 ? 0 : 1], &send, &bad));
        completions(wcs, i % 2 ? 1 : 2);
        CHECK(!wcs[1].status && wcs[1].opcode == (i % 2 ? IBV_WC_LOCAL_INV : IBV_WC_SEND));
        CHECK(i % 2 || (wcs[2].wc_flags == IBV_WC_WITH_INV && wcs[2].invalidated_rkey == rkey));
    }
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(!wcs[0].status);
    wr.bind_mw.rkey = ibv_inc_rkey(wr.bind_mw.rkey);
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(wcs[0].status == IBV_WC_MW_BIND_ERR); /* The window is bound. */
    CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(region));
}

static void stopped(void)
{
    struct ibv_wc wc;
    struct ibv_async_event event;
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
    connect_pair();
    CHECK(!post_recv(qps[1], 0, memory + SIZE, 8) && !post_send(qps[0], 1, memory, 8, 0));
    CHECK(!completion().status && !completion().status);
    CHECK(!ibv_modify_qp(qps[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == qps[0]);
    ibv_ack_async_event(&event);
    CHECK(!ibv_query_qp(qps[0], &attr, IBV_QP_STATE, &init));
    CHECK(attr.qp_state == IBV_QPS_SQD && !attr.sq_draining);
    /* Requests wait, receives do not. */
    CHECK(!post_recv(qps[1], 2, memory + SIZE, 8) && !post_send(qps[0], 3, memory, 8, 0));
    struct timespec pause = { 0, 20 * 1000 * 1000 };
    nanosleep(&pause, NULL);
    CHECK(!ibv_poll_cq(cq, 1, &wc));
    CHECK(!to_state(qps[0], IBV_QPS_RTS));
    CHECK(!completion().status && !completion().status);
}

static void registrations(void)
{
    struct ibv_wc wcs[DEPTH];
    const uint64_t iova = 0x7000000010;
    struct ibv_mr *region =
        ibv_reg_mr_iova(pd, memory + SIZE, SIZE, iova,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    CHECK(region && region->addr == memory + SIZE);
    struct ibv_sge sge = { iova, 8, region->lkey };
    struct ibv_send_wr wr = request(0, IBV_WR_RDMA_READ, &sge), *bad;
    connect_pair();
    strcpy(memory + SIZE + 16, "remote");
    wr.wr.rdma.remote_addr = iova + 16;
    wr.wr.rdma.rkey = region->rkey;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(!wcs[0].status && !strcmp(memory + SIZE, "remote"));
    CHECK(ibv_rereg_mr(region, 8, pd, NULL, 0, 0) < 0 && errno == EINVAL);
    CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL,
                        memory, 64, IBV_ACCESS_LOCAL_WRITE));
    CHECK(region->addr == memory && region->length == 64);
    strcpy(memory, "far");
    sge = (struct ibv_sge){ (uintptr_t)memory, 4, region->lkey };
    wr.opcode = IBV_WR_SEND;
    CHECK(!post_recv(qps[1], 1, memory + SIZE, 8) && !ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 2);
    CHECK(!wcs[0].status && !wcs[1].status && !strcmp(memory + SIZE, "far"));
    CHECK(!ibv_dereg_mr(region));
}

static void polled_one_by_one(void)
{
    struct ibv_poll_cq_attr none = { 0 };
    struct ibv_cq_init_attr_ex attr = { .cqe = DEPTH,
                                        .wc_flags = IBV_WC_STANDARD_FLAGS,
                                        .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                        .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED };
    struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &attr);
    CHECK(ex && ibv_start_poll(ex, &none) == ENOENT);
    struct ibv_cq *usual = cq;
    cq = ibv_cq_ex_to_cq(ex);
    connect_pair();
    cq = usual;
    for (int i = 0; i < 3; i++) {
        CHECK(!post_recv(qps[1], 1, memory + SIZE, 64));
        CHECK(!post_send(qps[0], 2, memory, 20 + i, 0));
    }
    int seen[3] = { 0 };
    for (int i = 0; i < 6;) {
        int code = ibv_start_poll(ex, &none);
        if (code == ENOENT)
            continue;
        for (; !code; code = ibv_next_poll(ex), i++) {
            CHECK(!ex->status && ex->wr_id < 3);
            if (ex->wr_id == 1) {
                CHECK(ibv_wc_read_opcode(ex) == IBV_WC_RECV);
                CHECK(ibv_wc_read_byte_len(ex) == 20u + seen[1]);
                CHECK(ibv_wc_read_qp_num(ex) == qps[1]->qp_num && !ibv_wc_read_wc_flags(ex));
            }
            seen[ex->wr_id]++;
        }
        CHECK(code == ENOENT);
        ibv_end_poll(ex);
    }
    CHECK(seen[1] == 3 && seen[2] == 3);
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_destroy_qp(qps[i]));
    qps[0] = qps[1] = NULL;
    CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
}

static struct ibv_qp *create_extended(enum ibv_qp_type type, uint64_t operations)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = { .max_send_wr = DEPTH,
                 .max_recv_wr = DEPTH,
                 .max_send_sge = 2,
                 .max_recv_sge = 2,
                 .max_inline_data = 64 },
        .qp_type = type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = operations,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    CHECK(qp && ibv_qp_to_qp_ex(qp));
    return qp;
}

static void built_requests(void)
{
    struct ibv_wc wcs[DEPTH];
    char inline_data[] = "in two parts";
    struct ibv_data_buf parts[2] = { { inline_data, 6 }, { inline_data + 6, 7 } };
    for (int i = 0; i < 2; i++)
        qps[i] = create_extended(IBV_QPT_RC, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                                                 IBV_QP_EX_WITH_RDMA_READ |
                                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                                 IBV_QP_EX_WITH_SEND_WITH_IMM);
    for (int i = 0; i < 2; i++)
        CHECK(!to_init(qps[i]) && !to_rtr(qps[i], qps[!i]->qp_num) && !to_rts(qps[i]));
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qps[0]);
    CHECK(!post_recv(qps[1], 0, memory + SIZE, 64));
    CHECK(!post_recv(qps[1], 1, memory + SIZE + 64, 64));
    *(uint64_t *)(memory + SIZE + 128) = 40;
    strcpy(memory, "registered");
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ex->wr_id = 2;
    ibv_wr_send(ex);
    ibv_wr_set_inline_data_list(ex, 2, parts);
    memset(inline_data, 'x', sizeof inline_data);
    ex->wr_id = 3;
    ibv_wr_send_imm(ex, htonl(7));
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 11);
    ex->wr_id = 4;
    ibv_wr_atomic_fetch_add(ex, mr->rkey, (uintptr_t)(memory + SIZE + 128), 2);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)(memory + 64), 8);
    ex->wr_id = 5;
    ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)(memory + SIZE + 64));
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)(memory + 128), 11);
    CHECK(!ibv_wr_complete(ex));
    completions(wcs, 6);
    for (int i = 0; i < 6; i++)
        CHECK(!wcs[i].status);
    CHECK(!strcmp(memory + SIZE, "in two parts") && !strcmp(memory + 128, "registered"));
    CHECK(wcs[1].imm_data == htonl(7) && *(uint64_t *)(memory + 64) == 40);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    ibv_wr_start(ex);
    CHECK(!ibv_wr_complete(ex) && !ibv_poll_cq(cq, 1, wcs));
}

static void domains(void)
{
    struct ibv_td_init_attr td_attr = { 0 };
    struct ibv_td *td = ibv_alloc_td(context, &td_attr);
    CHECK(td && td->context == context);
    struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr), *usual = pd;
    CHECK(parent && ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    /* Memory of the domain belongs to queue pairs of the parent domain. */
    struct ibv_wc wcs[DEPTH];
    pd = parent;
    connect_pair();
    pd = usual;
    CHECK(!post_recv(qps[1], 0, memory + SIZE, 8) && !post_send(qps[0], 1, memory, 8, 0));
    completions(wcs, 2);
    CHECK(!wcs[0].status && !wcs[1].status && ibv_dealloc_pd(parent) == EBUSY);
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_destroy_qp(qps[i]));
    qps[0] = qps[1] = NULL;
    CHECK(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
    struct ibv_srq_init_attr_ex srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 },
                                             .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
                                                          IBV_SRQ_INIT_ATTR_PD,
                                             .srq_type = IBV_SRQT_BASIC,
                                             .pd = pd };
    struct ibv_srq *srq = ibv_create_srq_ex(context, &srq_attr);
    CHECK(srq && !ibv_destroy_srq(srq));
}

static void datagrams(void)
{
    enum { GRH = sizeof(struct ibv_grh) };
    struct ibv_wc wcs[DEPTH], none;
    struct ibv_ah_attr vector = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
    struct ibv_ah *ah = ibv_create_ah(pd, &vector);
    CHECK(ah && ibv_dealloc_pd(pd) == EBUSY);
    for (int i = 0; i < 2; i++) {
        qps[i] = create_extended(IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
        CHECK(datagrams_to(qps[i], IBV_QPS_RTS) == EINVAL && to_init(qps[i]) == EINVAL);
        CHECK(!datagrams_to(qps[i], IBV_QPS_INIT) && !datagrams_to(qps[i], IBV_QPS_RTR));
        CHECK(!datagrams_to(qps[i], IBV_QPS_RTS) && qps[i]->state == IBV_QPS_RTS);
    }
    struct ibv_sge sge = { (uintptr_t)memory, 9, mr->lkey };
    struct ibv_send_wr wr = request(0, IBV_WR_SEND_WITH_IMM, &sge), *bad;
    wr.imm_data = htonl(9);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qps[1]->qp_num;
    wr.wr.ud.remote_qkey = 0x4321;
    strcpy(memory, "datagram");
    /* Dropped by the receiver for its Q_Key. */
    CHECK(!post_recv(qps[1], 1, memory + SIZE, 256) && !ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(!wcs[0].status);
    wr.wr.ud.remote_qkey = 0x1234;
    CHECK(!ibv_req_notify_cq(cq, 0));
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 2);
    CHECK(!wcs[0].status && !wcs[1].status && wcs[1].byte_len == GRH + 9);
    CHECK(wcs[1].wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && wcs[1].imm_data == htonl(9));
    CHECK(wcs[1].src_qp == qps[0]->qp_num && !strcmp(memory + SIZE + GRH, "datagram"));
    CHECK(!ibv_poll_cq(cq, 1, &none));
    /* The answer, by the extended interface, to the sender of the message. */
    struct ibv_ah *back =
        ibv_create_ah_from_wc(pd, &wcs[1], (struct ibv_grh *)(memory + SIZE), 1);
    CHECK(back);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qps[1]);
    CHECK(!post_recv(qps[0], 2, memory + SIZE, 256));
    ibv_wr_start(ex);
    ex->wr_id = 3;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, back, wcs[1].src_qp, 0x80000000);
    ibv_wr_set_inline_data(ex, "answer", 7);
    CHECK(!ibv_wr_complete(ex));
    completions(wcs, 2);
    CHECK(!wcs[2].status && !wcs[3].status && !strcmp(memory + SIZE + GRH, "answer"));
    /* A program that sleeps is woken. */
    struct ibv_cq *of;
    void *cq_context;
    CHECK(!ibv_get_cq_event(channel, &of, &cq_context) && of == cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(!ibv_req_notify_cq(cq, 0) && !post_recv(qps[1], 4, memory + SIZE, 256));
    wr.send_flags = 0;
    CHECK(!ibv_post_send(qps[0], &wr, &bad));
    CHECK(!ibv_get_cq_event(channel, &of, &cq_context));
    ibv_ack_cq_events(cq, 1);
    completions(wcs, 1);
    CHECK(!wcs[4].status && wcs[4].src_qp == qps[0]->qp_num);
    /* A message that is too long for its receive, or for the path. */
    CHECK(!post_recv(qps[1], 5, memory + SIZE, GRH + 8) && !ibv_post_send(qps[0], &wr, &bad));
    completions(wcs, 1);
    CHECK(wcs[5].status == IBV_WC_LOC_LEN_ERR);
    sge.length = 4097;
    CHECK(ibv_post_send(qps[0], &wr, &bad) == EINVAL);
    sge.length = 8;
    wr.wr.ud.ah = NULL;
    CHECK(ibv_post_send(qps[0], &wr, &bad) == EINVAL);
    CHECK(!post_recv(qps[0], 6, memory, 64) && !to_state(qps[0], IBV_QPS_ERR));
    completions(wcs, 1);
    CHECK(wcs[6].status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_ah(back));
}

/* The completion queue is armed before its queue pair exists. */
static void datagram_events(void)
{
    struct ibv_ah_attr vector = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
    struct ibv_ah *ah = ibv_create_ah(pd, &vector);
    struct ibv_wc wcs[DEPTH];
    struct ibv_cq *of;
    void *cq_context;
    CHECK(ah && !ibv_req_notify_cq(cq, 0));
    for (int i = 0; i < 2; i++) {
        qps[i] = create_extended(IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
        CHECK(!datagrams_to(qps[i], IBV_QPS_INIT) && !datagrams_to(qps[i], IBV_QPS_RTR));
        CHECK(!datagrams_to(qps[i], IBV_QPS_RTS));
    }
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr wr = request(0, IBV_WR_SEND, &sge), *bad;
    wr.send_flags = 0;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qps[1]->qp_num;
    wr.wr.ud.remote_qkey = 0x1234;
    CHECK(!post_recv(qps[1], 1, memory + SIZE, 64) && !ibv_post_send(qps[0], &wr, &bad));
    CHECK(!ibv_get_cq_event(channel, &of, &cq_context) && of == cq);
    ibv_ack_cq_events(cq, 1);
    completions(wcs, 1);
    CHECK(!wcs[1].status);
    CHECK(!ibv_destroy_ah(ah));
}

static const struct verbs_case cases[] = {
    { "device", device },
    { "unsupported", unsupported },
    { "states", states },
    { "transfer", transfer },
    { "atomics", atomics },
    { "events", events },
    { "peer_gone", peer_gone },
    { "refused_access", refused_access },
    { "children", children },
    { "reused", reused },
    { "own_peer", own_peer },
    { "immediate", immediate },
    { "windows_of_type_1", windows_of_type_1 },
    { "windows_of_type_2", windows_of_type_2 },
    { "stopped", stopped },
    { "registrations", registrations },
    { "polled_one_by_one", polled_one_by_one },
    { "built_requests", built_requests },
    { "domains", domains },
    { "datagrams", datagrams },
    { "datagram_events", datagram_events },
};

int main(int argc, char **argv)
{
    return run_case(argc, argv, cases, sizeof cases / sizeof *cases);
}
