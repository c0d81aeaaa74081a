/* Completions, completion events, asynchronous events. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_INTERVAL_US 100 /* the guest has one CPU: rxe needs it more than this loop */

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

static void print_completion(FILE *answer, const struct ibv_wc *wc)
{
	bool with_imm = wc->wc_flags & IBV_WC_WITH_IMM;

	fprintf(answer, "%lu:%d:%d:%u:%u:0x%x:%u:%u:%u", wc->wr_id, wc->status, wc->opcode, wc->vendor_err, wc->byte_len,
		with_imm ? ntohl(wc->imm_data) : wc->invalidated_rkey, wc->wc_flags, wc->qp_num, wc->src_qp);
}

/* poll CQ count timeout_ms: waits for `count` completions, answers those that came */
void do_poll(struct session *session, struct request *request)
{
	struct ibv_cq *cq = find(session, word(request, 1, "a CQ"), KIND_CQ)->cq;
	uint64_t count = word_number(request, 2, "a count"), found = 0;
	uint64_t deadline = now_ms() + word_number(request, 3, "a timeout");

	fprintf(request->answer, " wc=");
	while (found < count) {
		struct ibv_wc wc = {0};
		int result = ibv_poll_cq(cq, 1, &wc);

		if (result < 0)
			refuse(EIO, "ibv_poll_cq failed: the CQ overran");
		if (result > 0) {
			fprintf(request->answer, "%s", found++ ? "," : "");
			print_completion(request->answer, &wc);
		} else if (now_ms() >= deadline) {
			break;
		} else {
			usleep(POLL_INTERVAL_US);
		}
	}
	fprintf(request->answer, " n=%lu", found);
}

/* notify CQ [solicited]: arms the CQ's event */
void do_notify(struct session *session, struct request *request)
{
	struct ibv_cq *cq = find(session, word(request, 1, "a CQ"), KIND_CQ)->cq;
	int error = ibv_req_notify_cq(cq, has_word(request, "solicited"));

	if (error)
		refuse(error, "ibv_req_notify_cq: %s", strerror(error));
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd descriptor = {.fd = fd, .events = POLLIN};

	return poll(&descriptor, 1, timeout_ms) > 0;
}

/* await timeout_ms: the CQ whose event comes first */
void do_await(struct session *session, struct request *request)
{
	struct ibv_cq *cq;
	void *context;

	if (!readable(session->channel->fd, word_number(request, 1, "a timeout")) ||
	    ibv_get_cq_event(session->channel, &cq, &context)) {
		fprintf(request->answer, " n=0");
		return;
	}
	ibv_ack_cq_events(cq, 1);
	for (struct object *object = session->objects; object; object = object->next)
		if (object->kind == KIND_CQ && object->cq == cq)
			fprintf(request->answer, " n=1 cq=%s", object->name);
}

/* The QPN when the event is a QP's, else 0. */
static uint32_t event_qpn(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->qp_num;
	default:
		return 0;
	}
}

/* events timeout_ms: waits for a first asynchronous event, answers all that are there */
void do_events(struct session *session, struct request *request)
{
	struct ibv_async_event event;
	int found = 0, timeout = word_number(request, 1, "a timeout");

	fprintf(request->answer, " events=");
	while (readable(session->context->async_fd, found ? 0 : timeout) && !ibv_get_async_event(session->context, &event)) {
		fprintf(request->answer, "%s%d:%u", found++ ? "," : "", event.event_type, event_qpn(&event));
		ibv_ack_async_event(&event);
	}
	fprintf(request->answer, " n=%d", found);
}
