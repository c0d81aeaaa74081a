/* Every verb and every function of the structures, called with null pointers, with objects that were destroyed or are of another
 * kind, with counts, masks and enumerations that make no sense: each is refused with an errno, and nothing breaks. */
#include "common.h"

#include <limits.h>

/* A verb that returns an errno. */
#define REFUSED(call)                                                                                                 \
    do {                                                                                                              \
        int result = (call);                                                                                          \
        if (result == 0) {                                                                                            \
            fprintf(stderr, "%s:%d: %s was not refused\n", __FILE__, __LINE__, #call);                               \
            _exit(1);                                                                                                 \
        }                                                                                                             \
    } while (0)
/* A verb that returns an object, or null with errno set. */
#define NOTHING(call)                                                                                                 \
    do {                                                                                                              \
        errno = 0;                                                                                                    \
        if ((call) != NULL || errno == 0) {                                                                           \
            fprintf(stderr, "%s:%d: %s gave something, or no errno\n", __FILE__, __LINE__, #call);                   \
            _exit(1);                                                                                                 \
        }                                                                                                             \
    } while (0)

/* Numbers that are the same each time. */
static uint64_t state = 88172645463325252ull;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* A number that is likely to be at an edge. */
static uint32_t odd(void) {
    static const uint32_t edges[] = {0, 1, 2, 3, 7, 8, 63, 64, 255, 256, 0xffff, 0x10000, 0xffffff, 0x1000000,
                                     INT_MAX, 0x80000000u, UINT_MAX - 1, UINT_MAX};
    return draw() % 4 ? edges[draw() % (sizeof edges / sizeof *edges)] : (uint32_t)draw();
}

static void fill(void *place, size_t size) {
    for (size_t i = 0; i < size; i++) ((unsigned char *)place)[i] = draw() % 3 ? 0 : (unsigned char)draw();
}

/* `object` is null or was destroyed, in each of these. */
static void with_context(struct ibv_context *context, struct verbs_context *functions, struct ibv_context_ops *ops) {
    struct ibv_device_attr device;
    struct ibv_device_attr_ex device_ex;
    struct ibv_port_attr port;
    struct ibv_async_event event;
    struct ibv_gid_entry entry;
    union ibv_gid gid;
    __be16 pkey;
    (void)ops;
    REFUSED(ibv_close_device(context));
    REFUSED(ibv_query_device(context, &device));
    REFUSED(functions->query_device_ex(context, NULL, &device_ex, sizeof device_ex));
    REFUSED(functions->query_port(context, 1, &port, sizeof port));
    REFUSED((ibv_query_port)(context, 1, (void *)&port));
    REFUSED(ibv_query_gid(context, 1, 0, &gid));
    REFUSED(_ibv_query_gid_ex(context, 1, 0, &entry, 0, sizeof entry));
    CHECK(_ibv_query_gid_table(context, &entry, 1, 0, sizeof entry) < 0);
    REFUSED(ibv_query_pkey(context, 1, 0, &pkey));
    CHECK(ibv_get_pkey_index(context, 1, 0xffff) < 0);
    REFUSED(ibv_get_async_event(context, &event));
    NOTHING(ibv_alloc_pd(context));
    NOTHING(ibv_create_comp_channel(context));
    NOTHING(ibv_create_cq(context, 10, NULL, NULL, 0));
    struct ibv_cq_init_attr_ex cq = {.cqe = 10};
    NOTHING(functions->create_cq_ex(context, &cq));
    struct ibv_qp_init_attr_ex qp = {.qp_type = IBV_QPT_RC};
    NOTHING(functions->create_qp_ex(context, &qp));
    struct ibv_srq_init_attr_ex srq = {.attr = {.max_wr = 1, .max_sge = 1}};
    NOTHING(functions->create_srq_ex(context, &srq));
    struct ibv_xrcd_init_attr xrcd = {.comp_mask = 3, .fd = -1};
    NOTHING(functions->open_xrcd(context, &xrcd));
    struct ibv_td_init_attr td = {0};
    NOTHING(functions->alloc_td(context, &td));
    struct ibv_parent_domain_init_attr parent = {0};
    NOTHING(functions->alloc_parent_domain(context, &parent));
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    REFUSED(functions->query_rt_values(context, &values));
    struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
    struct ibv_grh grh = {0};
    struct ibv_ah_attr ah;
    REFUSED(ibv_init_ah_from_wc(context, 1, &wc, &grh, &ah));
    REFUSED(ibv_resolve_eth_l2_from_gid(context, &ah, NULL, NULL));
}

static void with_pd(struct ibv_pd *pd, struct verbs_context *functions, struct ibv_context_ops *ops) {
    static char memory[4096];
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1};
    struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
    struct ibv_grh grh = {0};
    struct ibv_sge sge = {0};
    REFUSED(ibv_dealloc_pd(pd));
    NOTHING((ibv_reg_mr)(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
    NOTHING((ibv_reg_mr_iova)(pd, memory, sizeof memory, 0, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(ibv_reg_mr_iova2(pd, memory, sizeof memory, 0, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(functions->alloc_null_mr(pd));
    NOTHING(ibv_create_qp(pd, &qp));
    NOTHING(ibv_create_srq(pd, &srq));
    NOTHING(ibv_create_ah(pd, &ah));
    NOTHING(ibv_create_ah_from_wc(pd, &wc, &grh, 1));
    NOTHING(ops->alloc_mw(pd, IBV_MW_TYPE_1));
    NOTHING(ibv_import_mr(pd, 1));
    REFUSED(functions->advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
}

static void with_mr(struct ibv_mr *mr) {
    static char memory[4096];
    REFUSED(ibv_dereg_mr(mr));
    REFUSED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, sizeof memory, 0));
    ibv_unimport_mr(mr);
}

static void with_cq(struct ibv_cq *cq, struct ibv_context_ops *ops, struct verbs_context *functions, struct ibv_cq_ex *live) {
    struct ibv_wc wc[2];
    struct ibv_modify_cq_attr modify = {.attr_mask = IBV_CQ_ATTR_MODERATE};
    struct ibv_poll_cq_attr poll = {0};
    struct ibv_cq_ex *extended = (struct ibv_cq_ex *)cq;
    CHECK(ops->poll_cq(cq, 2, wc) < 0);
    REFUSED(ops->req_notify_cq(cq, 0));
    REFUSED(functions->modify_cq(cq, &modify));
    REFUSED(ibv_resize_cq(cq, 100));
    REFUSED(ibv_destroy_cq(cq));
    ibv_ack_cq_events(cq, UINT_MAX);
    REFUSED(live->start_poll(extended, &poll));
    REFUSED(live->next_poll(extended));
    live->end_poll(extended);
    live->read_opcode(extended);
    live->read_vendor_err(extended);
    live->read_byte_len(extended);
    live->read_imm_data(extended);
    live->read_qp_num(extended);
    live->read_src_qp(extended);
    live->read_wc_flags(extended);
    live->read_slid(extended);
    live->read_sl(extended);
    live->read_dlid_path_bits(extended);
    live->read_completion_ts(extended);
    live->read_completion_wallclock_ns(extended);
}

static void build_all(struct ibv_qp_ex *qp, struct ibv_qp_ex *live, struct ibv_ah *ah, struct ibv_mw *mw) {
    struct ibv_mw_bind_info bind = {0};
    struct ibv_data_buf buffer = {.addr = "x", .length = 1};
    struct ibv_sge sge = {0};
    live->wr_start(qp);
    live->wr_atomic_cmp_swp(qp, 1, 2, 3, 4);
    live->wr_atomic_fetch_add(qp, 1, 2, 3);
    live->wr_bind_mw(qp, mw, 1, &bind);
    live->wr_bind_mw(qp, mw, 1, NULL);
    live->wr_local_inv(qp, 1);
    live->wr_rdma_read(qp, 1, 2);
    live->wr_rdma_write(qp, 1, 2);
    live->wr_rdma_write_imm(qp, 1, 2, 3);
    live->wr_send(qp);
    live->wr_send_imm(qp, 1);
    live->wr_send_inv(qp, 1);
    live->wr_send_tso(qp, NULL, 0xffff, 0);
    live->wr_set_ud_addr(qp, ah, 1, 2);
    live->wr_set_xrc_srqn(qp, 1);
    live->wr_set_inline_data(qp, NULL, SIZE_MAX);
    live->wr_set_inline_data_list(qp, 1, &buffer);
    live->wr_set_inline_data_list(qp, SIZE_MAX, &buffer);
    live->wr_set_inline_data_list(qp, 2, NULL);
    live->wr_set_sge(qp, 1, 2, UINT_MAX);
    live->wr_set_sge_list(qp, 1, &sge);
    live->wr_set_sge_list(qp, SIZE_MAX, &sge);
    live->wr_set_sge_list(qp, 2, NULL);
    REFUSED(live->wr_complete(qp));
    live->wr_abort(qp);
    /* A setter before a request. */
    live->wr_start(qp);
    live->wr_set_sge(qp, 1, 2, 3);
    REFUSED(live->wr_complete(qp));
}

static void with_qp(struct ibv_qp *qp, struct ibv_context_ops *ops, struct ibv_qp_ex *live) {
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
    struct ibv_qp_init_attr init;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send = NULL;
    struct ibv_recv_wr receive = {0}, *bad_receive = NULL;
    struct ibv_mw_bind bind = {0};
    struct ibv_ece ece = {0};
    union ibv_gid group = {.raw = {0xff, 0x0e}};
    REFUSED(ibv_modify_qp(qp, &attributes, IBV_QP_STATE));
    REFUSED(ibv_query_qp(qp, &attributes, -1, &init));
    REFUSED(ibv_destroy_qp(qp));
    REFUSED(ibv_attach_mcast(qp, &group, 0));
    REFUSED(ibv_detach_mcast(qp, &group, 0));
    REFUSED(ibv_query_ece(qp, &ece));
    REFUSED(ibv_set_ece(qp, &ece));
    ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0);
    CHECK(!ibv_qp_to_qp_ex(qp));
    CHECK(ops->post_send(qp, &send, &bad_send) && bad_send == &send);
    REFUSED(ops->post_send(qp, &send, NULL));
    CHECK(ops->post_recv(qp, &receive, &bad_receive) && bad_receive == &receive);
    REFUSED(ops->post_recv(qp, &receive, NULL));
    REFUSED(ops->bind_mw(qp, NULL, &bind));
    build_all((struct ibv_qp_ex *)qp, live, NULL, NULL);
}

static void with_srq(struct ibv_srq *srq, struct ibv_context_ops *ops, struct verbs_context *functions) {
    struct ibv_srq_attr attributes = {0};
    struct ibv_recv_wr receive = {0}, *bad;
    uint32_t number;
    REFUSED(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT));
    REFUSED(ibv_query_srq(srq, &attributes));
    REFUSED(functions->get_srq_num(srq, &number));
    REFUSED(ops->post_srq_recv(srq, &receive, &bad));
    REFUSED(ibv_destroy_srq(srq));
}

static void with_rest(struct ibv_comp_channel *channel, struct ibv_ah *ah, struct ibv_mw *mw, struct ibv_xrcd *xrcd,
                      struct ibv_td *td, struct ibv_context_ops *ops, struct verbs_context *functions) {
    struct ibv_cq *cq;
    void *cookie;
    REFUSED(ibv_get_cq_event(channel, &cq, &cookie));
    REFUSED(ibv_destroy_comp_channel(channel));
    REFUSED(ibv_destroy_ah(ah));
    REFUSED(ops->dealloc_mw(mw));
    REFUSED(functions->close_xrcd(xrcd));
    REFUSED(functions->dealloc_td(td));
}

/* Null structures and places, for living objects. */
static void null_arguments(struct side *side, struct verbs_context *functions, struct ibv_context_ops *ops) {
    struct ibv_context *context = side->context;
    struct ibv_wc wc = {0};
    struct ibv_grh grh = {0};
    struct ibv_ah_attr ah;
    REFUSED(ibv_query_device(context, NULL));
    REFUSED(functions->query_device_ex(context, NULL, NULL, sizeof(struct ibv_device_attr_ex)));
    REFUSED(functions->query_device_ex(context, NULL, (void *)side->area, SIZE_MAX));
    REFUSED(functions->query_port(context, 1, NULL, sizeof(struct ibv_port_attr)));
    REFUSED(functions->query_port(context, 1, (void *)side->area, SIZE_MAX));
    REFUSED(functions->query_port(context, 0, (void *)side->area, 8));
    REFUSED(functions->query_port(context, 255, (void *)side->area, 8));
    REFUSED(ibv_query_gid(context, 1, 0, NULL));
    REFUSED(ibv_query_gid(context, 1, -1, (void *)side->area));
    REFUSED(ibv_query_gid(context, 1, INT_MAX, (void *)side->area));
    REFUSED(_ibv_query_gid_ex(context, 1, 0, NULL, 0, 40));
    REFUSED(_ibv_query_gid_ex(context, UINT_MAX, UINT_MAX, (void *)side->area, UINT_MAX, 40));
    CHECK(_ibv_query_gid_table(context, NULL, SIZE_MAX, 0, 40) < 0);
    CHECK(_ibv_query_gid_table(context, (void *)side->area, SIZE_MAX, 0, SIZE_MAX) < 0);
    REFUSED(ibv_query_pkey(context, 1, -1, (void *)side->area));
    REFUSED(ibv_query_pkey(context, 1, 0, NULL));
    NOTHING(functions->create_cq_ex(context, NULL));
    NOTHING(functions->create_qp_ex(context, NULL));
    NOTHING(functions->create_srq_ex(context, NULL));
    NOTHING(functions->open_xrcd(context, NULL));
    NOTHING(functions->alloc_td(context, NULL));
    NOTHING(functions->alloc_parent_domain(context, NULL));
    REFUSED(functions->query_rt_values(context, NULL));
    NOTHING(ibv_create_qp(side->pd, NULL));
    NOTHING(ibv_create_srq(side->pd, NULL));
    NOTHING(ibv_create_ah(side->pd, NULL));
    NOTHING(ibv_create_ah_from_wc(side->pd, NULL, &grh, 1));
    NOTHING(ibv_create_ah_from_wc(side->pd, &wc, NULL, 1));
    REFUSED(ibv_init_ah_from_wc(context, 1, NULL, &grh, &ah));
    REFUSED(ibv_init_ah_from_wc(context, 1, &wc, NULL, &ah));
    REFUSED(ibv_init_ah_from_wc(context, 1, &wc, &grh, NULL));
    REFUSED(ibv_modify_qp(side->qp, NULL, IBV_QP_STATE));
    REFUSED(ibv_query_qp(side->qp, NULL, 0, NULL));
    REFUSED(ibv_attach_mcast(side->qp, NULL, 0));
    REFUSED(ibv_query_ece(side->qp, NULL));
    REFUSED(ibv_set_ece(side->qp, NULL));
    REFUSED(ops->bind_mw(side->qp, NULL, NULL));
    REFUSED(functions->modify_cq(side->cq, NULL));
    CHECK(ops->poll_cq(side->cq, 5, NULL) < 0);
    CHECK(ops->poll_cq(side->cq, -1, NULL) == 0);
    CHECK(ops->poll_cq(side->cq, 0, NULL) == 0);
    ibv_ack_async_event(NULL);
    struct ibv_async_event event = {.event_type = 12345};
    ibv_ack_async_event(&event);
    for (int type = 0; type < 30; type++) {
        event.event_type = type;
        event.element.qp = NULL;
        ibv_ack_async_event(&event);
    }
    /* An empty list is no request. */
    CHECK(ops->post_send(side->qp, NULL, NULL) == 0 && ops->post_recv(side->qp, NULL, NULL) == 0);
}

/* Memory that is none. */
static void regions(struct side *side, struct verbs_context *functions) {
    struct ibv_sge list[2] = {{.addr = (uintptr_t)side->area, .length = AREA, .lkey = side->mr->lkey}};
    NOTHING(ibv_reg_mr_iova2(side->pd, NULL, 4096, 0, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(ibv_reg_mr_iova2(side->pd, side->area, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(ibv_reg_mr_iova2(side->pd, side->area, SIZE_MAX / 2, 0, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(ibv_reg_mr_iova2(side->pd, (void *)-1, 4096, 0, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(ibv_reg_mr_iova2(side->pd, (void *)16, 4096, 0, IBV_ACCESS_LOCAL_WRITE));
    NOTHING(ibv_reg_mr_iova2(side->pd, side->area, AREA, 0, -1));
    NOTHING(ibv_reg_mr_iova2(side->pd, side->area, AREA, 0, IBV_ACCESS_REMOTE_WRITE));
    NOTHING(ibv_reg_mr_iova2(side->pd, (void *)"constant", 4, 0, IBV_ACCESS_LOCAL_WRITE));
    REFUSED(ibv_rereg_mr(side->mr, 0, NULL, NULL, 0, 0));
    REFUSED(ibv_rereg_mr(side->mr, -1, NULL, NULL, 0, 0));
    REFUSED(ibv_rereg_mr(side->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 4096, 0));
    REFUSED(ibv_rereg_mr(side->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)16, SIZE_MAX, 0));
    REFUSED(ibv_rereg_mr(side->mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0));
    REFUSED(ibv_rereg_mr(side->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, -1));
    NOTHING(side->context->ops.alloc_mw(side->pd, 0));
    NOTHING(side->context->ops.alloc_mw(side->pd, -1));
    CHECK(!functions->advise_mr(side->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, list, 1));
    CHECK(!functions->advise_mr(side->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0));
    CHECK(functions->advise_mr(side->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 2) == EFAULT);
    CHECK(functions->advise_mr(side->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, list, 1) == EINVAL);
    REFUSED(functions->advise_mr(side->pd, 77, 0, list, 1));
    REFUSED(functions->advise_mr(side->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 1));
    REFUSED(functions->advise_mr(side->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, UINT_MAX));
    list[0].lkey++;
    CHECK(functions->advise_mr(side->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1) == EFAULT);
    /* The region is as it was. */
    CHECK(!ibv_rereg_mr(side->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
}

/* Attributes and requests drawn by lot; whatever is granted is given back. */
static void lots(struct side *side, struct verbs_context *functions) {
    struct ibv_context *context = side->context;
    for (int i = 0; i < 2000; i++) {
        struct ibv_cq *cq = ibv_create_cq(context, (int)odd(), NULL, NULL, (int)(odd() % 3));
        if (cq) {
            ibv_resize_cq(cq, (int)odd());
            CHECK(!ibv_destroy_cq(cq));
        }
        struct ibv_qp_init_attr_ex init = {.send_cq = side->cq, .recv_cq = side->cq, .pd = side->pd,
            .qp_type = odd() % 16, .comp_mask = draw() % 2 ? IBV_QP_INIT_ATTR_PD : odd(), .send_ops_flags = odd(),
            .cap = {odd(), odd(), odd(), odd(), odd()}};
        if (draw() % 2) init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
        struct ibv_qp *qp = functions->create_qp_ex(context, &init);
        if (qp) CHECK(!ibv_destroy_qp(qp));
        struct ibv_srq_init_attr srq_init = {.attr = {odd(), odd(), odd()}};
        struct ibv_srq *srq = ibv_create_srq(side->pd, &srq_init);
        if (srq) {
            struct ibv_srq_attr attr = {odd(), odd(), odd()};
            ibv_modify_srq(srq, &attr, odd() % 8);
            CHECK(!ibv_destroy_srq(srq));
        }
        struct ibv_ah_attr ah_attr;
        fill(&ah_attr, sizeof ah_attr);
        struct ibv_ah *ah = ibv_create_ah(side->pd, &ah_attr);
        if (ah) CHECK(!ibv_destroy_ah(ah));
    }
    struct ibv_qp_init_attr init = {.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC,
                                    .cap = {16, 16, 2, 2, 64}};
    static const int types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    for (int i = 0; i < 3000; i++) {
        init.qp_type = types[i % 3];
        struct ibv_qp *qp = ibv_create_qp(side->pd, &init);
        CHECK(qp);
        if (i % 3 == 0) {
            /* To itself: what is drawn for this one is carried out. */
            struct side loop = *side;
            loop.qp = qp;
            join(&loop, place_of(&loop));
        }
        for (int j = 0; j < 8; j++) {
            struct ibv_qp_attr attributes;
            fill(&attributes, sizeof attributes);
            attributes.qp_state = draw() % 9;
            if (draw() % 4 == 0) ibv_modify_qp(qp, &attributes, draw() % 2 ? IBV_QP_STATE : (int)(odd() | IBV_QP_STATE));
            struct ibv_sge sge[2] = {{.addr = (uintptr_t)side->area, .length = odd() % AREA, .lkey = side->mr->lkey}};
            struct ibv_send_wr send, *bad;
            fill(&send, sizeof send);
            send.next = NULL;
            send.sg_list = draw() % 8 ? sge : NULL;
            send.num_sge = draw() % 2 ? 1 : draw() % 2 ? 0 : (int)(odd() | 0x80000000u);
            send.opcode = draw() % 18;
            send.send_flags = draw() % 64;
            send.send_flags &= draw() % 2 ? ~IBV_SEND_INLINE : -1;
            send.wr.ud.ah = NULL;
            send.bind_mw.mw = NULL;
            send.bind_mw.bind_info.mr = NULL;
            ibv_post_send(qp, &send, &bad);
            struct ibv_recv_wr receive = {.sg_list = send.sg_list, .num_sge = send.num_sge}, *bad_receive;
            ibv_post_recv(qp, &receive, &bad_receive);
            struct ibv_wc wc[64];
            while (ibv_poll_cq(side->cq, 64, wc) == 64) {}
        }
        CHECK(!ibv_destroy_qp(qp));
    }
}

static void words(void) {
    for (int i = -3; i < 60; i++) {
        int value = i < 0 ? (int)odd() : i;
        CHECK(ibv_wc_status_str(value) && ibv_node_type_str(value) && ibv_port_state_str(value));
        CHECK(ibv_event_type_str(value));
        (void)ibv_rate_to_mult(value);
        (void)mult_to_ibv_rate(value);
        (void)ibv_rate_to_mbps(value);
        (void)mbps_to_ibv_rate(value);
    }
}

int main(void) {
    ibv_free_device_list(NULL);
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices);
    ibv_free_device_list(devices);
    NOTHING(ibv_open_device(NULL));
    CHECK(!ibv_get_device_name(NULL) && ibv_get_device_index(NULL) == -1 && ibv_get_device_guid(NULL) == 0);
    NOTHING(ibv_import_device(-1));

    struct side side = make_side(open_loopback());
    struct ibv_context *context = side.context;
    /* As they were: what a closed context's structure holds is nobody's promise. */
    struct verbs_context *functions = verbs_get_ctx(context);
    CHECK(functions);
    struct ibv_context_ops ops = context->ops;
    struct ibv_cq_init_attr_ex cq_init = {.cqe = 10};
    struct ibv_cq_ex *cq = functions->create_cq_ex(context, &cq_init);
    struct ibv_qp_init_attr_ex qp_init = {.send_cq = side.cq, .recv_cq = side.cq, .pd = side.pd, .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND,
        .cap = {4, 4, 1, 1, 16}};
    struct ibv_qp *qp = functions->create_qp_ex(context, &qp_init);
    CHECK(cq && qp);
    struct ibv_cq_ex cq_functions = *cq;
    struct ibv_qp_ex qp_functions = *ibv_qp_to_qp_ex(qp);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = ibv_reg_mr(pd, side.area, 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
    CHECK(!ibv_query_gid(context, 1, 0, &ah_attr.grh.dgid));
    struct ibv_ah *ah = ibv_create_ah(pd, &ah_attr);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_xrcd_init_attr xrcd_init = {.comp_mask = 3, .fd = -1};
    struct ibv_xrcd *xrcd = functions->open_xrcd(context, &xrcd_init);
    struct ibv_td_init_attr td_init = {0};
    struct ibv_td *td = functions->alloc_td(context, &td_init);
    CHECK(pd && mr && srq && channel && ah && mw && xrcd && td);
    build_all(ibv_qp_to_qp_ex(qp), &qp_functions, ah, mw);
    null_arguments(&side, functions, &ops);

    /* Objects of another kind. */
    CHECK(ibv_destroy_qp((void *)cq) == EINVAL && ibv_destroy_cq((void *)qp) == EINVAL);
    CHECK(ibv_dereg_mr((void *)pd) == EINVAL && ibv_dealloc_pd((void *)mr) == EINVAL);
    CHECK(ops.poll_cq((void *)qp, 1, (void *)side.area) < 0);

    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq((struct ibv_cq *)cq) && !ibv_dereg_mr(mr) && !ibv_destroy_srq(srq));
    CHECK(!ibv_destroy_ah(ah) && !ibv_dealloc_mw(mw) && !functions->close_xrcd(xrcd) && !functions->dealloc_td(td));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
    for (int freed = 0; freed < 2; freed++) {
        with_pd(freed ? pd : NULL, functions, &ops);
        with_mr(freed ? mr : NULL);
        with_cq(freed ? (struct ibv_cq *)cq : NULL, &ops, functions, &cq_functions);
        with_qp(freed ? qp : NULL, &ops, &qp_functions);
        with_srq(freed ? srq : NULL, &ops, functions);
        with_rest(freed ? channel : NULL, freed ? ah : NULL, freed ? mw : NULL, freed ? xrcd : NULL, freed ? td : NULL,
                  &ops, functions);
    }
    regions(&side, functions);
    lots(&side, functions);
    words();

    struct verbs_context kept = *functions;
    CHECK(!ibv_close_device(context));
    with_context(NULL, &kept, &ops);
    with_context(context, &kept, &ops);
    /* Everything of a context goes with it. */
    CHECK(ibv_destroy_qp(side.qp) == EINVAL && ibv_dereg_mr(side.mr) == EINVAL && ibv_dealloc_pd(side.pd) == EINVAL);
    CHECK(post(&side, IBV_WR_SEND, side.area, 8, 1, 0, 0) == EINVAL);
    CHECK(ibv_destroy_cq(side.cq) == EINVAL && ibv_destroy_comp_channel(side.channel) == EINVAL);
    puts("nonsense: ok");
    return 0;
}
