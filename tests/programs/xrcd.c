/* XRC domains by a file: the context shares one, and what is not there answers with the errno that says so. */
#include "common.h"
#include <fcntl.h>

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd, int flags) {
    struct ibv_xrcd_init_attr init = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};
    errno = 0;
    return ibv_open_xrcd(context, &init);
}

/* As join() of common.h, with the attributes that each end of XRC takes. */
static void join_xrc(struct side *side, struct place peer, int is_target) {
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(!ibv_modify_qp(side->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qpn, .rq_psn = peer.psn,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .hop_limit = 64}}};
    int receives = is_target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
    CHECK(!ibv_modify_qp(side->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | receives));
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 77, .max_rd_atomic = 4, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    int sends = is_target ? 0 : IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    CHECK(!ibv_modify_qp(side->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | sends));
}

#define REFUSED(call, error) CHECK(!(call) && errno == (error))

int main(void) {
    struct ibv_context *context = open_loopback(), *other = open_loopback();
    char name[] = "/tmp/uroce-xrcd-XXXXXX", another[] = "/tmp/uroce-xrcd-XXXXXX";
    int fd = mkstemp(name), different = mkstemp(another);
    CHECK(fd >= 0 && different >= 0 && !unlink(name) && !unlink(another));

    REFUSED(open_domain(context, 9999, O_CREAT), EBADF);
    REFUSED(open_domain(context, fd, 0), EAGAIN);
    struct ibv_xrcd *first = open_domain(context, fd, O_CREAT | O_EXCL);
    CHECK(first);
    REFUSED(open_domain(context, fd, O_CREAT | O_EXCL), EINVAL);
    REFUSED(open_domain(other, fd, O_CREAT), EOPNOTSUPP);
    /* By another descriptor of the same file. */
    int copy = dup(fd);
    struct ibv_xrcd *second = open_domain(context, copy, 0);
    CHECK(second && second != first && !close(copy));
    struct ibv_xrcd *apart = open_domain(other, different, O_CREAT), *nameless = open_domain(other, -1, 0);
    CHECK(apart && nameless);

    /* A target of the one takes messages for a shared receive queue of the other. */
    struct side initiator = make_side(other);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(pd && cq && !ibv_destroy_qp(initiator.qp));
    char area[64] = "";
    struct ibv_mr *mr = ibv_reg_mr(pd, area, sizeof area, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr_ex queue = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = second, .cq = cq,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
    struct ibv_srq *srq = ibv_create_srq_ex(context, &queue);
    uint32_t number;
    CHECK(mr && srq && !ibv_get_srq_num(srq, &number));
    struct ibv_sge sge = {(uintptr_t)area, sizeof area, mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad_receive;
    CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive));
    struct ibv_qp_init_attr_ex target_init = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = first};
    struct ibv_qp_init_attr_ex initiator_init = {.qp_type = IBV_QPT_XRC_SEND, .send_cq = initiator.cq, .sq_sig_all = 1,
        .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = initiator.pd, .cap = {.max_send_wr = 4, .max_send_sge = 1}};
    struct side target = {.context = context, .pd = pd, .cq = cq, .mr = mr, .area = area};
    CHECK(target.qp = ibv_create_qp_ex(context, &target_init));
    CHECK(initiator.qp = ibv_create_qp_ex(other, &initiator_init));
    struct ibv_qp_open_attr again = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                                     .qp_num = target.qp->qp_num, .xrcd = second, .qp_type = IBV_QPT_XRC_RECV};
    REFUSED(ibv_open_qp(context, &again), EOPNOTSUPP);
    join_xrc(&target, place_of(&initiator), 1);
    join_xrc(&initiator, place_of(&target), 0);
    strcpy(initiator.area, "by either name");
    struct ibv_sge from = {(uintptr_t)initiator.area, 15, initiator.mr->lkey};
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1, .qp_type.xrc.remote_srqn = number}, *bad;
    CHECK(!ibv_post_send(initiator.qp, &send, &bad));
    CHECK(next_completion(&initiator).status == IBV_WC_SUCCESS);
    struct ibv_wc received = next_completion(&target);
    CHECK(received.wr_id == 7 && received.byte_len == 15 && !strcmp(area, "by either name"));

    /* The last one to go takes the domain away; a context that closes takes its own. */
    CHECK(!ibv_destroy_qp(target.qp) && !ibv_destroy_srq(srq) && !ibv_close_xrcd(first));
    CHECK(open_domain(context, fd, 0) && !ibv_close_xrcd(second));
    REFUSED(open_domain(other, fd, O_CREAT), EOPNOTSUPP);
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    CHECK(open_domain(other, fd, O_CREAT | O_EXCL));
    puts("xrcd: ok");
    return 0;
}
