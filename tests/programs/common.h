/* What the programs of this folder share: checks that name their line, and two connected queue pairs on loopback. */
#ifndef UROCE_COMMON_H
#define UROCE_COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends the program when `condition` does not hold. */
#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno));   \
            _exit(1);                                                                                                 \
        }                                                                                                             \
    } while (0)

enum { AREA = 64 * 1024 };

/* One end of a connection. */
struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *area;
};

/* What a peer must know. */
struct place {
    union ibv_gid gid;
    uint32_t qpn, psn, rkey;
    uint64_t address;
};

static inline struct ibv_context *open_loopback(void) {
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0);
    struct ibv_context *context = NULL;
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(list[i]), "uroce_lo")) context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    CHECK(context);
    return context;
}

static inline struct side make_side(struct ibv_context *context) {
    struct side side = {.context = context};
    CHECK(side.pd = ibv_alloc_pd(context));
    CHECK(side.channel = ibv_create_comp_channel(context));
    CHECK(side.cq = ibv_create_cq(context, 1024, NULL, side.channel, 0));
    struct ibv_qp_init_attr init = {.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 256, .max_recv_wr = 256, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64}};
    CHECK(side.qp = ibv_create_qp(side.pd, &init));
    CHECK(side.area = aligned_alloc(4096, AREA));
    memset(side.area, 0, AREA);
    CHECK(side.mr = ibv_reg_mr(side.pd, side.area, AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
    return side;
}

static inline struct place place_of(struct side *side) {
    struct place place = {.qpn = side->qp->qp_num, .psn = 77, .rkey = side->mr->rkey,
                          .address = (uintptr_t)side->area};
    CHECK(!ibv_query_gid(side->context, 1, 0, &place.gid));
    return place;
}

/* RESET to RTS; `timeout` as in the attribute, 4.096 us * 2^timeout. */
static inline void join_with(struct side *side, struct place peer, int timeout, int retries) {
    int rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};
    CHECK(!ibv_modify_qp(side->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qpn,
        .rq_psn = peer.psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .hop_limit = 64}}};
    CHECK(!ibv_modify_qp(side->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 77, .max_rd_atomic = 4, .timeout = timeout,
        .retry_cnt = retries, .rnr_retry = 7};
    CHECK(!ibv_modify_qp(side->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                                             IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY));
}

static inline void join(struct side *side, struct place peer) { join_with(side, peer, 14, 7); }

/* Two connected ends in this process, each with a context of its own. */
static inline void make_pair(struct side *a, struct side *b) {
    *a = make_side(open_loopback());
    *b = make_side(open_loopback());
    join(a, place_of(b));
    join(b, place_of(a));
}

/* The next completion, polling. */
static inline struct ibv_wc next_completion(struct side *side) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(side->cq, 1, &wc)) == 0) {}
    CHECK(count == 1);
    return wc;
}

/* One request of one element; returns what the verb does. */
static inline int post(struct side *side, enum ibv_wr_opcode opcode, void *local, uint32_t length, uint32_t lkey,
                       uint64_t remote, uint32_t rkey) {
    struct ibv_sge sge = {.addr = (uintptr_t)local, .length = length, .lkey = lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    }
    struct ibv_send_wr *bad;
    return ibv_post_send(side->qp, &wr, &bad);
}

static inline void post_receive(struct side *side, void *local, uint32_t length, uint32_t lkey) {
    struct ibv_sge sge = {.addr = (uintptr_t)local, .length = length, .lkey = lkey};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;
    CHECK(!ibv_post_recv(side->qp, &wr, &bad));
}

#endif
