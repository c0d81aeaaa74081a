/* What processes do to a library: fork, exec, signals, an end with objects alive, a peer that is killed. The argument says which. */
#include "common.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static void write_once(struct side *from, struct side *to) {
    static char next = 1;
    from->area[0] = next;
    CHECK(!post(from, IBV_WR_RDMA_WRITE, from->area, 100, from->mr->lkey, (uintptr_t)to->area, to->mr->rkey));
    CHECK(next_completion(from).status == IBV_WC_SUCCESS);
    CHECK(to->area[0] == next++);
}

static int descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory);
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static int status_of(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The child can do nothing with what its parent opened, and everything with what it opens itself; the parent goes on. */
static void fork_test(void) {
    struct side a, b;
    make_pair(&a, &b);
    write_once(&a, &b);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct ibv_device_attr attributes;
        struct ibv_wc wc;
        CHECK(ibv_query_device(a.context, &attributes) == EINVAL);
        CHECK(post(&a, IBV_WR_RDMA_WRITE, a.area, 8, a.mr->lkey, (uintptr_t)b.area, b.mr->rkey) == EINVAL);
        CHECK(ibv_poll_cq(a.cq, 1, &wc) < 0);
        CHECK(!ibv_alloc_pd(a.context) && errno == EINVAL);
        CHECK(ibv_destroy_qp(a.qp) == EINVAL && ibv_dereg_mr(a.mr) == EINVAL);
        CHECK(ibv_close_device(a.context) == -1 && errno == EINVAL);
        struct side c, d;
        make_pair(&c, &d);
        write_once(&c, &d);
        exit(0);
    }
    CHECK(status_of(child) == 0);
    write_once(&a, &b);
    CHECK(!ibv_close_device(a.context) && !ibv_close_device(b.context));
}

/* A new program has nothing of the old one's. */
static void exec_test(const char *self, const char *before) {
    if (before) {
        CHECK(descriptors() == atoi(before));
        struct sigaction action;
        CHECK(!sigaction(SIGSEGV, NULL, &action) && action.sa_handler == SIG_DFL);
        fork_test();
        return;
    }
    char count[16];
    snprintf(count, sizeof count, "%d", descriptors());
    struct side a, b;
    make_pair(&a, &b);
    write_once(&a, &b);
    CHECK(descriptors() > atoi(count));
    execl(self, self, "exec", count, NULL);
    CHECK(!"execl");
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}

static void *write_later(void *argument) {
    struct side *sides = argument;
    while (alarms < 5) usleep(1000);
    write_once(&sides[0], &sides[1]);
    post_receive(&sides[1], sides[1].area, 64, sides[1].mr->lkey);
    CHECK(!post(&sides[0], IBV_WR_SEND, sides[0].area, 64, sides[0].mr->lkey, 0, 0));
    return NULL;
}

/* A wait ends with EINTR, as with the kernel's verbs, unless the handler was installed to have it go on. */
static void signal_test(void) {
    struct side sides[2];
    make_pair(&sides[0], &sides[1]);
    struct side *b = &sides[1];
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(!sigaction(SIGALRM, &action, NULL));
    struct itimerval soon = {.it_value = {.tv_usec = 20000}, .it_interval = {.tv_usec = 20000}};
    CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
    struct ibv_cq *cq;
    void *cookie;
    CHECK(!ibv_req_notify_cq(b->cq, 0));
    CHECK(ibv_get_cq_event(b->channel, &cq, &cookie) == -1 && errno == EINTR && alarms > 0);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(b->context, &event) == -1 && errno == EINTR);
    action.sa_flags = SA_RESTART;
    CHECK(!sigaction(SIGALRM, &action, NULL));
    alarms = 0;
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, write_later, sides));
    CHECK(!ibv_get_cq_event(b->channel, &cq, &cookie) && cq == b->cq && alarms >= 5);
    ibv_ack_cq_events(cq, 1);
    CHECK(!pthread_join(thread, NULL));
    CHECK(next_completion(b).status == IBV_WC_SUCCESS);
}

/* The two ends in two processes: what each must know goes through pipes. */
struct link {
    int in, out;
};

static struct place exchange(struct link link, struct side *side) {
    struct place ours = place_of(side), theirs;
    CHECK(write(link.out, &ours, sizeof ours) == sizeof ours);
    CHECK(read(link.in, &theirs, sizeof theirs) == sizeof theirs);
    return theirs;
}

static pid_t fork_linked(struct link *link) {
    int down[2], up[2];
    CHECK(!pipe(down) && !pipe(up));
    pid_t child = fork();
    CHECK(child >= 0);
    *link = child ? (struct link){up[0], down[1]} : (struct link){down[0], up[1]};
    close(child ? down[0] : up[0]);
    close(child ? up[1] : down[1]);
    return child;
}

/* A receiver that ends right after its last completion, with everything alive: what it owed its peer is not lost. The sender has
 * one try for each message, and no time-out for a second one. */
static void exit_test(void) {
    for (int round = 0; round < 20; round++) {
        struct link link;
        pid_t child = fork_linked(&link);
        struct side side = make_side(open_loopback());
        if (child == 0) {
            join(&side, exchange(link, &side));
            post_receive(&side, side.area, AREA, side.mr->lkey);
            CHECK(write(link.out, "r", 1) == 1);
            CHECK(next_completion(&side).status == IBV_WC_SUCCESS);
            exit(7);
        }
        join_with(&side, exchange(link, &side), 16, 0);
        char ready;
        CHECK(read(link.in, &ready, 1) == 1);
        CHECK(!post(&side, IBV_WR_SEND, side.area, 1000, side.mr->lkey, 0, 0));
        CHECK(next_completion(&side).status == IBV_WC_SUCCESS);
        CHECK(status_of(child) == 7);
        CHECK(!ibv_close_device(side.context));
        close(link.in);
        close(link.out);
    }
}

/* A peer that is killed: requests to it end with what the retries ran out of. */
static void kill_test(void) {
    struct link link;
    pid_t child = fork_linked(&link);
    struct side side = make_side(open_loopback());
    struct place peer = exchange(link, &side);
    join_with(&side, peer, 10, 2);
    if (child == 0) {
        CHECK(write(link.out, "r", 1) == 1);
        for (;;) pause();
    }
    char ready;
    CHECK(read(link.in, &ready, 1) == 1);
    CHECK(!post(&side, IBV_WR_RDMA_WRITE, side.area, 8, side.mr->lkey, peer.address, peer.rkey));
    CHECK(next_completion(&side).status == IBV_WC_SUCCESS);
    CHECK(!kill(child, SIGKILL));
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    for (int i = 0; i < 3; i++)
        CHECK(!post(&side, IBV_WR_RDMA_WRITE, side.area, 8, side.mr->lkey, peer.address, peer.rkey));
    CHECK(next_completion(&side).status == IBV_WC_RETRY_EXC_ERR);
    CHECK(next_completion(&side).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(next_completion(&side).status == IBV_WC_WR_FLUSH_ERR);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(side.qp, &attributes, IBV_QP_STATE, &init) && attributes.qp_state == IBV_QPS_ERR);
    CHECK(!ibv_close_device(side.context));
}

/* Two contexts of one device, and one that closes under the other's eyes. */
static void contexts_test(void) {
    struct side a, b, c, d;
    make_pair(&a, &b);
    make_pair(&c, &d);
    CHECK(a.context != c.context && a.context->device == c.context->device);
    write_once(&a, &b);
    write_once(&c, &d);
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC};
    CHECK(!ibv_create_qp(c.pd, &init));
    CHECK(!ibv_close_device(a.context));
    CHECK(ibv_dealloc_pd(a.pd) == EINVAL && ibv_destroy_cq(a.cq) == EINVAL);
    write_once(&c, &d);
    CHECK(!ibv_close_device(b.context) && !ibv_close_device(c.context) && !ibv_close_device(d.context));
}

int main(int count, char **arguments) {
    CHECK(count > 1);
    const char *test = arguments[1];
    if (!strcmp(test, "fork")) fork_test();
    else if (!strcmp(test, "exec")) exec_test(arguments[0], count > 2 ? arguments[2] : NULL);
    else if (!strcmp(test, "signal")) signal_test();
    else if (!strcmp(test, "exit")) exit_test();
    else if (!strcmp(test, "kill")) kill_test();
    else if (!strcmp(test, "contexts")) contexts_test();
    else CHECK(!"a test of this name");
    printf("%s: ok\n", test);
    return 0;
}
