/* Threads that post to one queue pair, threads that poll one completion queue, and one that makes and destroys objects meanwhile:
 * every byte arrives, every request completes once. */
#include "common.h"

#include <pthread.h>
#include <arpa/inet.h>
#include <stdatomic.h>

enum { POSTERS = 4, POLLERS = 2, EACH = 1000, SLOT = 64, IN_FLIGHT = 16 };

static struct side a, b;
/* Each poster has a slot of memory on both sides, and so many requests under way. */
static atomic_int under_way[POSTERS];
static atomic_int completed[POSTERS], received;
static atomic_bool done;

static void *poster(void *argument) {
    int number = (int)(intptr_t)argument;
    for (int i = 1; i <= EACH; i++) {
        while (atomic_load(&under_way[number]) == IN_FLIGHT) sched_yield();
        atomic_fetch_add(&under_way[number], 1);
        /* Inline: the bytes are taken when it is posted. The last byte tells a message from the one before. */
        uint32_t words[SLOT / 4];
        for (int w = 0; w < SLOT / 4; w++) words[w] = (uint32_t)(number << 24 | i);
        struct ibv_sge sge = {.addr = (uintptr_t)words, .length = SLOT};
        struct ibv_send_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                 .imm_data = htonl(number << 24 | i), .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
        wr.wr.rdma.remote_addr = (uintptr_t)b.area + number * SLOT;
        wr.wr.rdma.rkey = b.mr->rkey;
        struct ibv_send_wr *bad;
        int error;
        while ((error = ibv_post_send(a.qp, &wr, &bad)) == ENOMEM) sched_yield();
        CHECK(!error);
    }
    return NULL;
}

static void *send_poller(void *argument) {
    (void)argument;
    while (!atomic_load(&done)) {
        struct ibv_wc wc[8];
        int count = ibv_poll_cq(a.cq, 8, wc);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++) {
            CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < POSTERS);
            atomic_fetch_add(&completed[wc[i].wr_id], 1);
            atomic_fetch_sub(&under_way[wc[i].wr_id], 1);
        }
    }
    return NULL;
}

static atomic_char seen[POSTERS][EACH + 1];

static void *receive_poller(void *argument) {
    (void)argument;
    while (!atomic_load(&done)) {
        struct ibv_wc wc;
        int count = ibv_poll_cq(b.cq, 1, &wc);
        CHECK(count >= 0);
        if (!count) continue;
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == SLOT);
        uint32_t word = ntohl(wc.imm_data);
        CHECK((word >> 24) < POSTERS && (word & 0xffffff) <= EACH);
        CHECK(atomic_fetch_add(&seen[word >> 24][word & 0xffffff], 1) == 0);
        post_receive(&b, b.area, 0, b.mr->lkey);
        atomic_fetch_add(&received, 1);
    }
    return NULL;
}

/* Objects come and go beside the traffic. */
static void *changer(void *argument) {
    (void)argument;
    char *memory = aligned_alloc(4096, 8192);
    CHECK(memory);
    while (!atomic_load(&done)) {
        struct ibv_pd *pd = ibv_alloc_pd(a.context);
        CHECK(pd);
        struct ibv_mr *mr = ibv_reg_mr(pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE);
        struct ibv_cq *cq = ibv_create_cq(a.context, 16, NULL, NULL, 0);
        CHECK(mr && cq);
        struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {.max_send_wr = 4}};
        struct ibv_qp *qp = ibv_create_qp(pd, &init);
        CHECK(qp);
        CHECK(ibv_dealloc_pd(pd) == EBUSY);
        CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
        sched_yield();
    }
    free(memory);
    return NULL;
}

int main(void) {
    make_pair(&a, &b);
    for (int i = 0; i < 200; i++) post_receive(&b, b.area, 0, b.mr->lkey);
    pthread_t posters[POSTERS], others[2 * POLLERS + 1];
    int count = 0;
    for (int i = 0; i < POLLERS; i++) {
        CHECK(!pthread_create(&others[count++], NULL, send_poller, NULL));
        CHECK(!pthread_create(&others[count++], NULL, receive_poller, NULL));
    }
    CHECK(!pthread_create(&others[count++], NULL, changer, NULL));
    for (intptr_t i = 0; i < POSTERS; i++) CHECK(!pthread_create(&posters[i], NULL, poster, (void *)i));
    for (int i = 0; i < POSTERS; i++) CHECK(!pthread_join(posters[i], NULL));
    for (int i = 0; i < POSTERS; i++)
        while (atomic_load(&completed[i]) < EACH) sched_yield();
    while (atomic_load(&received) < POSTERS * EACH) sched_yield();
    atomic_store(&done, 1);
    for (int i = 0; i < count; i++) CHECK(!pthread_join(others[i], NULL));
    for (int i = 0; i < POSTERS; i++) {
        CHECK(atomic_load(&completed[i]) == EACH);
        uint32_t *words = (uint32_t *)(b.area + i * SLOT);
        for (int w = 0; w < SLOT / 4; w++) CHECK(words[w] == (uint32_t)(i << 24 | EACH));
    }
    CHECK(!ibv_close_device(a.context) && !ibv_close_device(b.context));
    puts("threads: ok");
    return 0;
}
