/* Memory that goes away while it is registered: its users get errors, the program lives, and faults that are not ours reach the
 * program's own handlers, whenever those were installed. */
#include "common.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_async_event next_event(struct ibv_context *context) {
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(context, &event));
    ibv_ack_async_event(&event);
    return event;
}

static void *map(void) {
    void *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 5, 4 * PAGE);
    return memory;
}

/* The peer comes for memory that is gone. */
static void remote(enum ibv_wr_opcode opcode, uint32_t length) {
    struct side a, b;
    make_pair(&a, &b);
    char *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(b.pd, memory, 4 * PAGE, RIGHTS);
    CHECK(mr);
    CHECK(!post(&a, opcode, a.area, length, a.mr->lkey, (uintptr_t)memory, mr->rkey));
    CHECK(next_completion(&a).status == IBV_WC_SUCCESS);
    /* Nothing comes there while the test looks. */
    CHECK(mmap(memory, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
    CHECK(!post(&a, opcode, a.area, length, a.mr->lkey, (uintptr_t)memory, mr->rkey));
    struct ibv_wc wc = next_completion(&a);
    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
    struct ibv_async_event event = next_event(b.context);
    CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp);
    CHECK(!ibv_dereg_mr(mr));
    CHECK(!munmap(memory, 4 * PAGE));
    CHECK(!ibv_close_device(a.context) && !ibv_close_device(b.context));
}

/* A request names memory of its own program that is gone. */
static void local(enum ibv_wr_opcode opcode) {
    struct side a, b;
    make_pair(&a, &b);
    char *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(a.pd, memory, 4 * PAGE, RIGHTS);
    CHECK(mr);
    CHECK(!munmap(memory, 4 * PAGE));
    if (opcode == IBV_WR_SEND) post_receive(&b, b.area, AREA, b.mr->lkey);
    CHECK(!post(&a, opcode, memory, 3 * PAGE, mr->lkey, (uintptr_t)b.area, b.mr->rkey));
    CHECK(next_completion(&a).status == IBV_WC_LOC_PROT_ERR);
    CHECK(!ibv_close_device(a.context) && !ibv_close_device(b.context));
}

/* A SEND meets a receive request whose memory is gone. */
static void receive(void) {
    struct side a, b;
    make_pair(&a, &b);
    char *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(b.pd, memory, 4 * PAGE, RIGHTS);
    CHECK(mr);
    post_receive(&b, memory, 4 * PAGE, mr->lkey);
    CHECK(!munmap(memory, 4 * PAGE));
    CHECK(!post(&a, IBV_WR_SEND, a.area, 100, a.mr->lkey, 0, 0));
    CHECK(next_completion(&a).status == IBV_WC_REM_OP_ERR);
    CHECK(next_completion(&b).status == IBV_WC_LOC_PROT_ERR);
    CHECK(!ibv_close_device(a.context) && !ibv_close_device(b.context));
}

/* A file that becomes shorter: SIGBUS where the others are SIGSEGV. */
static void shortened(void) {
    struct side a, b;
    make_pair(&a, &b);
    char name[] = "/tmp/uroce-shortened-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && !unlink(name) && !ftruncate(file, 4 * PAGE));
    char *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(memory != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(b.pd, memory, 4 * PAGE, RIGHTS);
    CHECK(mr && !ftruncate(file, PAGE));
    CHECK(!post(&a, IBV_WR_RDMA_WRITE, a.area, PAGE, a.mr->lkey, (uintptr_t)memory, mr->rkey));
    CHECK(next_completion(&a).status == IBV_WC_SUCCESS);
    CHECK(!post(&a, IBV_WR_RDMA_WRITE, a.area, PAGE, a.mr->lkey, (uintptr_t)memory + 2 * PAGE, mr->rkey));
    CHECK(next_completion(&a).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_close_device(a.context) && !ibv_close_device(b.context));
}

static sigjmp_buf back;
static volatile sig_atomic_t plain, informed;

static void on_plain(int signal) {
    (void)signal;
    plain++;
    siglongjmp(back, 1);
}

/* What the handler found when it came, to which it hands on. */
static struct sigaction found;

static void on_informed(int signal, siginfo_t *info, void *context) {
    informed++;
    CHECK(info->si_addr == (void *)16);
    found.sa_sigaction(signal, info, context);
}

static void fault(void) {
    if (!sigsetjmp(back, 1)) *(volatile char *)16 = 1;
}

int main(void) {
    /* A handler that was there first gets what is not the library's, as often as it happens. */
    CHECK(signal(SIGSEGV, on_plain) != SIG_ERR);
    remote(IBV_WR_RDMA_WRITE, 3 * PAGE);
    remote(IBV_WR_RDMA_WRITE, 7);
    remote(IBV_WR_RDMA_READ, 3 * PAGE);
    remote(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
    remote(IBV_WR_ATOMIC_CMP_AND_SWP, 8);
    local(IBV_WR_SEND);
    local(IBV_WR_RDMA_WRITE);
    local(IBV_WR_RDMA_READ);
    receive();
    shortened();
    CHECK(plain == 0);
    fault();
    fault();
    CHECK(plain == 2);
    /* One that came later took the library's place, until memory is registered again; and hands on to the one it found. */
    struct sigaction later = {.sa_sigaction = on_informed, .sa_flags = SA_SIGINFO};
    CHECK(!sigaction(SIGSEGV, &later, &found) && (found.sa_flags & SA_SIGINFO));
    remote(IBV_WR_RDMA_WRITE, 3 * PAGE);
    CHECK(informed == 0);
    fault();
    fault();
    CHECK(informed == 2 && plain == 4);
    /* And sent by a program, it is no fault. */
    if (!sigsetjmp(back, 1)) {
        struct sigaction now;
        CHECK(signal(SIGSEGV, on_plain) != SIG_ERR);
        struct side side = make_side(open_loopback());
        CHECK(!sigaction(SIGSEGV, NULL, &now) && (void *)now.sa_sigaction != (void *)on_plain);
        CHECK(!ibv_close_device(side.context));
        raise(SIGSEGV);
        CHECK(!"raise(3) returned");
    }
    CHECK(plain == 5 && informed == 2);
    /* Without a handler of the program's a fault ends it as it always did: the caller looks for the signal. */
    puts("unmapped: ok");
    fflush(stdout);
    CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
    make_side(open_loopback());
    *(volatile char *)16 = 1;
    return 1;
}
