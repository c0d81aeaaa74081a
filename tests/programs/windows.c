/* A bind that is refused because the queue is full, and posted again: the window has the key that it had, so it succeeds. */
#include "common.h"

enum { DEPTH = 8 };

int main(void) {
    struct side a = make_side(open_loopback()), b = make_side(open_loopback());
    CHECK(!ibv_destroy_qp(a.qp));
    struct ibv_qp_init_attr_ex init = {.send_cq = a.cq, .recv_cq = a.cq, .pd = a.pd, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(a.qp = ibv_create_qp_ex(a.context, &init));
    join(&a, place_of(&b));
    join(&b, place_of(&a));
    struct ibv_mr *mr = ibv_reg_mr(a.pd, a.area, AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    CHECK(mr);
    struct ibv_mw *mw = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2);
    CHECK(mw);
    struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(a.qp);
    CHECK(qpx);
    struct ibv_mw_bind_info info = {.mr = mr, .addr = (uintptr_t)a.area, .length = 4096,
                                    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW, .bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = info}};
    struct ibv_send_wr invalidate = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = bind.bind_mw.rkey}, *bad;
    for (int extended = 0; extended < 2; extended++) {
        int posted = 0, error;
        while (!(error = post(&a, IBV_WR_RDMA_WRITE, a.area, AREA, a.mr->lkey, (uintptr_t)b.area, b.mr->rkey))) posted++;
        CHECK(error == ENOMEM);
        /* Completions are taken by polling, so there is no room until then. */
        if (extended) {
            for (int i = 0; i < 3; i++) {
                ibv_wr_start(qpx);
                ibv_wr_bind_mw(qpx, mw, bind.bind_mw.rkey, &info);
                CHECK(i == 2 ? (ibv_wr_abort(qpx), 1) : ibv_wr_complete(qpx));
            }
        } else {
            CHECK(ibv_post_send(a.qp, &bind, &bad) == ENOMEM && bad == &bind);
        }
        while (posted--) CHECK(next_completion(&a).status == IBV_WC_SUCCESS);
        if (extended) {
            qpx->wr_id = 5;
            qpx->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_start(qpx);
            ibv_wr_bind_mw(qpx, mw, bind.bind_mw.rkey, &info);
            CHECK(!ibv_wr_complete(qpx));
        } else {
            CHECK(!ibv_post_send(a.qp, &bind, &bad));
        }
        CHECK(next_completion(&a).status == IBV_WC_SUCCESS);
        CHECK(!post(&b, IBV_WR_RDMA_WRITE, b.area, 64, b.mr->lkey, (uintptr_t)a.area, bind.bind_mw.rkey));
        CHECK(next_completion(&b).status == IBV_WC_SUCCESS);
        CHECK(!ibv_post_send(a.qp, &invalidate, &bad));
        CHECK(next_completion(&a).status == IBV_WC_SUCCESS);
        bind.bind_mw.rkey = ibv_inc_rkey(bind.bind_mw.rkey);
        invalidate.invalidate_rkey = bind.bind_mw.rkey;
    }
    puts("windows: ok");
    return 0;
}
