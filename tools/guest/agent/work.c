/* Posts work requests. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SGE 32
#define MAX_COUNT 32768 /* of the requests that one line posts */

/* `MR:offset:length[:lkey],…` into a scatter/gather list. An offset or a length may lie outside the MR, and the
 * lkey may be a wrong one: that the kernel then fails the request is what some tests are about. With `inside`, data
 * that the library will read at once (inline), it may not. */
static int parse_sge(struct session *session, const char *text, struct ibv_sge *sge, bool inside)
{
	int count = 0;

	while (text && *text) {
		char name[NAME_SIZE];
		long long offset, length, lkey;
		int fields = sscanf(text, "%31[^:]:%lli:%lli:%lli", name, &offset, &length, &lkey);
		struct ibv_mr *mr;

		if (fields < 3 || count == MAX_SGE)
			refuse(EINVAL, "want at most %d of MR:offset:length, have %s", MAX_SGE, text);
		mr = find(session, name, KIND_MR)->mr;
		if (inside && (offset < 0 || length < 0 || offset + length > (long long)mr->length))
			refuse(ERANGE, "inline data outside %s: %s", name, text);
		sge[count].addr = (uintptr_t)mr->addr + offset;
		sge[count].length = length;
		sge[count++].lkey = fields == 4 ? lkey : mr->lkey;
		text += strcspn(text, ",");
		text += *text == ',';
	}
	return count;
}

/* `signaled|fence|solicited|inline` in any choice; `none`. Without the option: signaled. */
static unsigned int parse_flags(const char *text)
{
	static const struct {
		const char *name;
		unsigned int flag;
	} flags[] = {
		{"none", 0},
		{"signaled", IBV_SEND_SIGNALED},
		{"fence", IBV_SEND_FENCE},
		{"solicited", IBV_SEND_SOLICITED},
		{"inline", IBV_SEND_INLINE},
	};
	unsigned int result = 0;

	if (!text)
		return IBV_SEND_SIGNALED;
	while (*text) {
		size_t length = strcspn(text, "|"), i = 0, count = sizeof flags / sizeof *flags;

		while (i < count && (strlen(flags[i].name) != length || strncmp(flags[i].name, text, length)))
			i++;
		if (i == count)
			refuse(EINVAL, "no send flag %s", text);
		result |= flags[i].flag;
		text += length;
		text += *text == '|';
	}
	return result;
}

/* The operations by the name that `op=` takes. */
static const struct operation {
	const char *name;
	enum ibv_wr_opcode opcode;
} operations[] = {
	{"send", IBV_WR_SEND},
	{"send_imm", IBV_WR_SEND_WITH_IMM},
	{"send_inv", IBV_WR_SEND_WITH_INV},
	{"write", IBV_WR_RDMA_WRITE},
	{"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
	{"read", IBV_WR_RDMA_READ},
	{"cas", IBV_WR_ATOMIC_CMP_AND_SWP},
	{"faa", IBV_WR_ATOMIC_FETCH_AND_ADD},
	{"atomic_write", IBV_WR_ATOMIC_WRITE},
	{"local_inv", IBV_WR_LOCAL_INV},
	{"bind_mw", IBV_WR_BIND_MW},
};

static enum ibv_wr_opcode parse_operation(const char *text)
{
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (!strcmp(text, operations[i].name))
			return operations[i].opcode;
	refuse(EINVAL, "no operation %s", text);
}

/* ATOMIC WRITE is in the extended interface alone. Everything else goes through ibv_post_send, since librxe 44's
 * ibv_wr_set_sge_list takes every element to be as long as the first. */
static void post_atomic_write(struct request *request, struct ibv_qp *qp, const struct ibv_send_wr *send)
{
	struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
	uint64_t value = parse_number(needed_option(request, "value"), "value");
	int error;

	if (qp->qp_type != IBV_QPT_RC)
		refuse(EOPNOTSUPP, "only an RC QP has atomic_write");
	ibv_wr_start(extended);
	extended->wr_id = send->wr_id;
	extended->wr_flags = send->send_flags;
	ibv_wr_atomic_write(extended, send->wr.rdma.rkey, send->wr.rdma.remote_addr, &value);
	error = ibv_wr_complete(extended);
	if (error)
		refuse(error, "atomic_write not taken: %s", strerror(error));
}

/* bind_mw: the window of `mw=` over `sge=`'s one range, with `access=`; its new rkey is the answer. */
static void parse_bind(struct session *session, struct request *request, struct ibv_send_wr *send)
{
	char name[NAME_SIZE];

	if (send->num_sge != 1 || sscanf(needed_option(request, "sge"), "%31[^:]", name) != 1)
		refuse(EINVAL, "bind_mw wants one sge=MR:offset:length, the range of the window");
	send->bind_mw.mw = find(session, needed_option(request, "mw"), KIND_MW)->mw;
	send->bind_mw.rkey = ibv_inc_rkey(send->bind_mw.mw->rkey);
	send->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = find(session, name, KIND_MR)->mr,
		.addr = send->sg_list[0].addr,
		.length = send->sg_list[0].length,
		.mw_access_flags = option_number(request, "access", IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
	};
	send->num_sge = 0;
	fprintf(request->answer, " rkey=0x%x", send->bind_mw.rkey);
}

static void parse_address(struct session *session, struct request *request, struct ibv_send_wr *send)
{
	send->wr.ud.ah = find(session, needed_option(request, "ah"), KIND_AH)->ah;
	send->wr.ud.remote_qpn = parse_number(needed_option(request, "qpn"), "qpn");
	send->wr.ud.remote_qkey = option_number(request, "qkey", 0x11111111);
}

/* What the operation wants besides its scatter/gather list, in the unions of `send`. */
static void parse_operands(struct session *session, struct request *request, enum ibv_qp_type type,
			   struct ibv_send_wr *send)
{
	uint64_t raddr = option_number(request, "raddr", 0);
	uint32_t rkey = option_number(request, "rkey", 0);

	switch (send->opcode) {
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		send->invalidate_rkey = parse_number(needed_option(request, "inv_rkey"), "inv_rkey");
		break;
	case IBV_WR_BIND_MW:
		parse_bind(session, request, send);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		send->wr.atomic.remote_addr = raddr;
		send->wr.atomic.rkey = rkey;
		send->wr.atomic.compare_add = option_number(request, "compare", option_number(request, "add", 0));
		send->wr.atomic.swap = option_number(request, "swap", 0);
		break;
	default:
		send->imm_data = htonl(option_number(request, "imm", 0));
		send->wr.rdma.remote_addr = raddr;
		send->wr.rdma.rkey = rkey;
	}
	if (type == IBV_QPT_UD)
		parse_address(session, request, send);
}

/* `count` copies of `first` behind one doorbell, numbered on, each `stride` bytes further on both sides. */
static void post_sends(struct ibv_qp *qp, const struct ibv_send_wr *first, uint64_t count, uint64_t stride)
{
	struct ibv_send_wr *sends = calloc(count, sizeof *sends), *bad;
	struct ibv_sge(*lists)[MAX_SGE] = calloc(count, sizeof *lists);
	bool atomic = first->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || first->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	int error = ENOMEM;

	for (uint64_t i = 0; sends && lists && i < count; i++) {
		sends[i] = *first;
		sends[i].wr_id += i;
		sends[i].next = i + 1 < count ? &sends[i + 1] : NULL;
		sends[i].sg_list = lists[i];
		for (int k = 0; k < first->num_sge; k++) {
			lists[i][k] = first->sg_list[k];
			lists[i][k].addr += i * stride;
		}
		if (stride && atomic)
			sends[i].wr.atomic.remote_addr += i * stride;
		else if (stride && qp->qp_type != IBV_QPT_UD)
			sends[i].wr.rdma.remote_addr += i * stride;
	}
	if (sends && lists)
		error = ibv_post_send(qp, sends, &bad);
	free(sends);
	free(lists);
	if (error)
		refuse(error, "the queue pair does not take the request: %s", strerror(error));
}

/* send QP wr_id op= sge= raddr= rkey= … [count=] [stride=] */
void do_send(struct session *session, struct request *request)
{
	struct ibv_qp *qp = find(session, word(request, 1, "a QP"), KIND_QP)->qp;
	struct ibv_sge sge[MAX_SGE];
	struct ibv_send_wr send = {
		.wr_id = word_number(request, 2, "a wr_id"),
		.opcode = parse_operation(needed_option(request, "op")),
		.send_flags = parse_flags(option(request, "flags")),
		.sg_list = sge,
	};
	uint64_t count = option_number(request, "count", 1);

	if (count < 1 || count > MAX_COUNT)
		refuse(EINVAL, "count %lu: want 1 to %d", count, MAX_COUNT);
	send.num_sge = parse_sge(session, option(request, "sge"), sge, send.send_flags & IBV_SEND_INLINE);
	parse_operands(session, request, qp->qp_type, &send);
	if (send.opcode == IBV_WR_ATOMIC_WRITE)
		post_atomic_write(request, qp, &send);
	else
		post_sends(qp, &send, count, option_number(request, "stride", 0));
}

/* Posts to a QP or to an SRQ. */
static void post_receives(struct object *queue, struct ibv_recv_wr *list)
{
	struct ibv_recv_wr *bad;
	int error;

	if (queue->kind != KIND_QP && queue->kind != KIND_SRQ)
		refuse(EINVAL, "%s is neither a QP nor an SRQ", queue->name);
	error = queue->kind == KIND_QP ? ibv_post_recv(queue->qp, list, &bad) : ibv_post_srq_recv(queue->srq, list, &bad);
	if (error)
		refuse(error, "receive with wr_id %lu not taken: %s", bad->wr_id, strerror(error));
}

/* recv QP wr_id [MR:offset:length,…] */
void do_recv(struct session *session, struct request *request)
{
	struct object *queue = find_any(session, word(request, 1, "a QP or SRQ"));
	struct ibv_sge sge[MAX_SGE];
	struct ibv_recv_wr receive = {
		.wr_id = word_number(request, 2, "a wr_id"),
		.sg_list = sge,
		.num_sge = parse_sge(session, request->word_count > 3 ? request->words[3] : NULL, sge, false),
	};

	post_receives(queue, &receive);
}

/* recvn QP count wr_id MR offset length stride: `count` receives, each `stride` bytes further */
void do_recvn(struct session *session, struct request *request)
{
	struct object *queue = find_any(session, word(request, 1, "a QP or SRQ"));
	uint64_t count = word_number(request, 2, "a count"), wr_id = word_number(request, 3, "a wr_id");
	struct ibv_mr *mr = find(session, word(request, 4, "an MR"), KIND_MR)->mr;
	uint64_t offset = word_number(request, 5, "an offset"), length = word_number(request, 6, "a length");
	uint64_t stride = word_number(request, 7, "a stride");

	for (uint64_t i = 0; i < count; i++) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)mr->addr + offset + i * stride,
			.length = length,
			.lkey = mr->lkey,
		};
		struct ibv_recv_wr receive = {.wr_id = wr_id + i, .sg_list = &sge, .num_sge = 1};

		post_receives(queue, &receive);
	}
}
