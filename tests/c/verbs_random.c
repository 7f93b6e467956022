/*
 * Random calls of libibverbs, many of them wrong: values out of range, states and masks that do not
 * fit, objects of other devices, and destructions of objects that others use, which must fail with
 * EBUSY and have no effect. A model records which objects use which. Pointers are valid, or null
 * where the header permits null, because rdma-core crashes for others too.
 *
 *   verbs_random SEED STEPS
 */
#include "verbs_kit.h"

enum { KINDS = 8, SLOTS = 6, PARENTS = 5 };
enum kind { PD, CHANNEL, CQ, MR, MW, SRQ, QP, AH };

/* An object, the objects that it uses, and the number of objects that use it. */
struct object {
    void *pointer;
    struct object *parents[PARENTS];
    int users;
};

static struct object objects[KINDS][SLOTS];
static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

/* A small number, or now and then one from the whole range. */
static uint32_t number(uint32_t usual)
{
    static const uint32_t odd[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xffff, 65536 };
    return draw(8) ? draw(usual + 1) : odd[draw(sizeof odd / sizeof *odd)];
}

static struct object *any(enum kind kind)
{
    struct object *found = &objects[kind][draw(SLOTS)];
    return found->pointer ? found : NULL;
}

static struct object *free_slot(enum kind kind)
{
    struct object *found = &objects[kind][draw(SLOTS)];
    return found->pointer ? NULL : found;
}

static void created(struct object *slot, void *pointer, struct object *parents[], int count)
{
    if (!pointer)
        return;
    *slot = (struct object){ .pointer = pointer };
    for (int i = 0; i < count; i++) {
        slot->parents[i] = parents[i];
        if (parents[i])
            parents[i]->users++;
    }
}

static int destroy(enum kind kind, void *pointer)
{
    switch (kind) {
    case PD: return ibv_dealloc_pd(pointer);
    case CHANNEL: return ibv_destroy_comp_channel(pointer);
    case CQ: return ibv_destroy_cq(pointer);
    case MR: return ibv_dereg_mr(pointer);
    case MW: return ibv_dealloc_mw(pointer);
    case SRQ: return ibv_destroy_srq(pointer);
    case QP: return ibv_destroy_qp(pointer);
    case AH: return ibv_destroy_ah(pointer);
    }
    return -1;
}

static void try_destroy(enum kind kind, struct object *it)
{
    int code = destroy(kind, it->pointer);
    if (it->users > 0) {
        CHECK(code == EBUSY);
        return;
    }
    CHECK(!code);
    for (int i = 0; i < PARENTS; i++)
        if (it->parents[i])
            it->parents[i]->users--;
    *it = (struct object){ 0 };
}

static void create_queue_pair(struct object *slot, struct object *domain)
{
    static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC,
                                              IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, 77 };
    struct object *parents[PARENTS] = { domain, any(CQ), any(CQ), draw(3) ? NULL : any(SRQ) };
    struct ibv_qp_init_attr init = {
        .send_cq = parents[1] ? parents[1]->pointer : NULL,
        .recv_cq = parents[2] ? parents[2]->pointer : NULL,
        .srq = parents[3] ? parents[3]->pointer : NULL,
        .cap = { number(16), number(16), number(4), number(4), number(128) },
        .qp_type = types[draw(sizeof types / sizeof *types)],
    };
    created(slot, ibv_create_qp(domain->pointer, &init), parents, 4);
}

static void create_one(enum kind kind)
{
    struct object *slot = free_slot(kind), *domain = any(PD);
    struct object *parents[PARENTS] = { domain };
    if (!slot || (kind > CQ && !domain))
        return;
    switch (kind) {
    case PD: created(slot, ibv_alloc_pd(context), NULL, 0); break;
    case CHANNEL: created(slot, ibv_create_comp_channel(context), NULL, 0); break;
    case CQ: {
        struct object *of = any(CHANNEL);
        int depth = (int)number(64), vector = draw(8) ? 0 : (int)number(4);
        created(slot, ibv_create_cq(context, depth, NULL, of ? of->pointer : NULL, vector), &of, 1);
        break;
    }
    case MR: {
        size_t from = draw(SIZE), length = draw(SIZE);
        unsigned access = draw(4) ? draw(64) : number(0x100);
        created(slot, ibv_reg_mr(domain->pointer, memory + from, length, (int)access), parents, 1);
        break;
    }
    case MW: created(slot, ibv_alloc_mw(domain->pointer, draw(4)), parents, 1); break;
    case SRQ: {
        struct ibv_srq_init_attr init = { .attr = { number(16), number(4), number(16) } };
        created(slot, ibv_create_srq(domain->pointer, &init), parents, 1);
        break;
    }
    case QP: create_queue_pair(slot, domain); break;
    case AH: {
        struct ibv_ah_attr vector = { .is_global = draw(4) > 0,
                                      .port_num = draw(4) ? 1 : draw(256),
                                      .grh = { .dgid = gid } };
        vector.grh.sgid_index = draw(4) ? 0 : draw(256);
        created(slot, ibv_create_ah(domain->pointer, &vector), parents, 1);
        break;
    }
    }
}

/* The next state of a usual program, or any state, with the usual mask or any mask. */
static void modify(struct ibv_qp *qp)
{
    struct object *peer = any(QP);
    uint32_t number_of_peer = peer ? ((struct ibv_qp *)peer->pointer)->qp_num : number(1 << 24);
    if (draw(3)) {
        int (*usual[])(struct ibv_qp *) = { to_init, to_rts };
        if (draw(3))
            usual[draw(2)](qp);
        else
            to_rtr(qp, number_of_peer);
        return;
    }
    struct ibv_qp_attr attr = { .qp_state = draw(9),
                                .cur_qp_state = draw(9),
                                .path_mtu = draw(8),
                                .qkey = number(8),
                                .dest_qp_num = number_of_peer,
                                .qp_access_flags = draw(32),
                                .pkey_index = draw(2),
                                .max_rd_atomic = draw(32),
                                .max_dest_rd_atomic = draw(32),
                                .min_rnr_timer = draw(256),
                                .port_num = draw(3),
                                .timeout = draw(256),
                                .retry_cnt = draw(256),
                                .rnr_retry = draw(256),
                                .ah_attr = { .is_global = 1, .port_num = 1 } };
    attr.ah_attr.grh.dgid = gid;
    int mask = draw(2) ? (int)draw(1 << 21) : IBV_QP_STATE;
    ibv_modify_qp(qp, &attr, mask);
}

static struct ibv_sge segment(void)
{
    struct object *of = any(MR);
    struct ibv_mr *region = of ? of->pointer : mr;
    return (struct ibv_sge){ (uintptr_t)region->addr + draw(64), draw(256),
                             draw(8) ? region->lkey : number(1 << 20) };
}

static void post(struct ibv_qp *qp)
{
    struct ibv_sge list[4] = { segment(), segment(), segment(), segment() };
    if (draw(2)) {
        struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = list, .num_sge = (int)draw(5) }, *bad;
        ibv_post_recv(qp, &wr, &bad);
        return;
    }
    struct object *of = any(AH), *window = any(MW);
    struct ibv_send_wr wr = { .wr_id = 2,
                              .sg_list = list,
                              .num_sge = (int)draw(5),
                              .opcode = draw(14),
                              .send_flags = draw(16) };
    struct ibv_send_wr *bad;
    if (wr.send_flags & IBV_SEND_INLINE || wr.opcode == IBV_WR_BIND_MW)
        /* The caller's memory is read without a check. */
        for (int i = 0; i < 4; i++)
            list[i] = (struct ibv_sge){ (uintptr_t)memory, draw(256), 0 };
    if (qp->qp_type == IBV_QPT_UD) {
        wr.wr.ud.ah = of ? of->pointer : NULL;
        wr.wr.ud.remote_qpn = qp->qp_num;
        wr.wr.ud.remote_qkey = draw(2);
    } else {
        /* One layout serves Writes, Reads and atomics. */
        wr.wr.atomic.remote_addr = (uintptr_t)memory + draw(SIZE);
        wr.wr.rdma.rkey = draw(2) ? mr->rkey : number(1 << 20);
    }
    if (wr.opcode == IBV_WR_BIND_MW) {
        wr.bind_mw.mw = window ? window->pointer : NULL;
        wr.bind_mw.rkey = number(1 << 20);
        wr.bind_mw.bind_info =
            (struct ibv_mw_bind_info){ mr, (uintptr_t)memory, draw(128), draw(64) };
    }
    ibv_post_send(qp, &wr, &bad);
}

static void use(enum kind kind, struct object *it)
{
    struct ibv_wc wcs[4];
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct ibv_async_event event;
    struct pollfd fd = { context->async_fd, POLLIN, 0 };
    if (kind == QP && draw(3)) {
        draw(2) ? modify(it->pointer) : post(it->pointer);
    } else if (kind == QP) {
        CHECK(!ibv_query_qp(it->pointer, &attr, number(1 << 20), &init));
    } else if (kind == CQ) {
        CHECK(ibv_poll_cq(it->pointer, (int)draw(5), wcs) >= 0);
        if (!draw(4))
            ibv_resize_cq(it->pointer, (int)number(64));
        if (!draw(4))
            CHECK(!ibv_req_notify_cq(it->pointer, draw(2)));
    } else if (kind == SRQ) {
        struct ibv_srq_attr limits = { number(16), number(4), number(16) };
        struct ibv_sge sge = segment();
        struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = (int)draw(2) }, *bad;
        draw(2) ? ibv_modify_srq(it->pointer, &limits, draw(8))
                : ibv_post_srq_recv(it->pointer, &wr, &bad);
    } else if (kind == MR) {
        struct object *domain = any(PD);
        /* The model does not follow a region to another domain. */
        ibv_rereg_mr(it->pointer, draw(8) & ~IBV_REREG_MR_CHANGE_PD,
                     domain ? domain->pointer : NULL, memory + draw(SIZE), draw(SIZE), draw(64));
    }
    if (poll(&fd, 1, 0) == 1 && !ibv_get_async_event(context, &event))
        ibv_ack_async_event(&event);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    setvbuf(stdout, NULL, _IOLBF, 0);
    state = strtoull(argv[1], NULL, 0);
    open_device();
    for (long step = strtol(argv[2], NULL, 0); step > 0; step--) {
        enum kind kind = draw(KINDS);
        struct object *it = any(kind);
        switch (draw(4)) {
        case 0: create_one(kind); break;
        case 1: if (it) try_destroy(kind, it); break;
        default: if (it) use(kind, it);
        }
    }
    /* The kinds are in the order of use, except for channels and completion queues. */
    for (int kind = KINDS - 1; kind >= 0; kind--)
        for (int i = 0; i < SLOTS; i++)
            if (kind != CHANNEL && objects[kind][i].pointer)
                try_destroy(kind, &objects[kind][i]);
    for (int i = 0; i < SLOTS; i++)
        if (objects[CHANNEL][i].pointer)
            try_destroy(CHANNEL, &objects[CHANNEL][i]);
    close_device();
    printf("random ok\n");
    return 0;
}
