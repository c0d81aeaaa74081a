/* Creates, finds and destroys the objects of a session. */
#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *const kind_names[] = {"mr", "mw", "cq", "srq", "qp", "ah"};

struct object *find_any(struct session *session, const char *name)
{
	for (struct object *object = session->objects; object; object = object->next)
		if (!strcmp(object->name, name))
			return object;
	refuse(ENOENT, "no object is named %s", name);
}

struct object *find(struct session *session, const char *name, enum kind kind)
{
	struct object *object = find_any(session, name);

	if (object->kind != kind)
		refuse(EINVAL, "%s is a %s, want a %s", name, kind_names[object->kind], kind_names[kind]);
	return object;
}

/* A new object under the name in word 1. `made` is what verbs returned, with errno set when it is NULL. */
static struct object *keep(struct session *session, struct request *request, enum kind kind, void *made)
{
	struct object *object;

	if (!made)
		refuse(errno ? errno : EIO, "cannot create the %s: %s", kind_names[kind], strerror(errno));
	object = calloc(1, sizeof *object);
	snprintf(object->name, sizeof object->name, "%s", request->words[1]);
	object->kind = kind;
	object->mr = made; /* any member: all are pointers */
	object->next = session->objects;
	session->objects = object;
	return object;
}

/* Refuses a name that is missing, taken or too long, before anything is made. */
static void check_name(struct session *session, struct request *request)
{
	const char *name = word(request, 1, "a name");

	if (strlen(name) >= NAME_SIZE || strpbrk(name, ":,"))
		refuse(EINVAL, "name %s: want at most %d characters, without : and ,", name, NAME_SIZE - 1);
	for (struct object *object = session->objects; object; object = object->next)
		if (!strcmp(object->name, name))
			refuse(EEXIST, "%s exists", name);
	errno = 0;
}

/* mr NAME length access */
void do_mr(struct session *session, struct request *request)
{
	size_t length = word_number(request, 2, "a length");
	int access = word_number(request, 3, "an access mask");
	struct ibv_mr *mr;
	void *memory;

	check_name(session, request);
	memory = mmap(NULL, length ? length : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		refuse(errno, "cannot allocate %zu bytes: %s", length, strerror(errno));
	mr = ibv_reg_mr(session->pd, memory, length, access);
	if (!mr)
		munmap(memory, length ? length : 1);
	keep(session, request, KIND_MR, mr);
	fprintf(request->answer, " addr=0x%lx lkey=0x%x rkey=0x%x", (uintptr_t)memory, mr->lkey, mr->rkey);
}

/* mw NAME [type=1|2] */
void do_mw(struct session *session, struct request *request)
{
	struct ibv_mw *mw;

	check_name(session, request);
	mw = ibv_alloc_mw(session->pd, option_number(request, "type", IBV_MW_TYPE_2));
	keep(session, request, KIND_MW, mw);
	fprintf(request->answer, " rkey=0x%x", mw->rkey);
}

/* cq NAME depth */
void do_cq(struct session *session, struct request *request)
{
	struct ibv_cq *cq;

	check_name(session, request);
	cq = ibv_create_cq(session->context, word_number(request, 2, "a depth"), NULL, session->channel, 0);
	keep(session, request, KIND_CQ, cq);
	fprintf(request->answer, " cqe=%d", cq->cqe);
}

/* srq NAME depth [sge=] */
void do_srq(struct session *session, struct request *request)
{
	struct ibv_srq_init_attr attributes = {
		.attr = {.max_wr = word_number(request, 2, "a depth"), .max_sge = option_number(request, "sge", 4)},
	};

	check_name(session, request);
	keep(session, request, KIND_SRQ, ibv_create_srq(session->pd, &attributes));
	fprintf(request->answer, " max_wr=%u", attributes.attr.max_wr);
}

/* limit SRQ n: arms the event of a shared receive queue that runs low */
void do_limit(struct session *session, struct request *request)
{
	struct ibv_srq *srq = find(session, word(request, 1, "an SRQ"), KIND_SRQ)->srq;
	struct ibv_srq_attr attributes = {.srq_limit = word_number(request, 2, "a limit")};
	int error = ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT);

	if (error)
		refuse(error, "ibv_modify_srq: %s", strerror(error));
}

static enum ibv_qp_type parse_qp_type(const char *text)
{
	if (!strcmp(text, "rc"))
		return IBV_QPT_RC;
	if (!strcmp(text, "uc"))
		return IBV_QPT_UC;
	if (!strcmp(text, "ud"))
		return IBV_QPT_UD;
	refuse(EINVAL, "no QP type %s: want rc, uc or ud", text);
}

/* qp NAME rc|uc|ud cq= [recv_cq=] [srq=] [depth=] [sge=] [inline=] [sig_all=] */
void do_qp(struct session *session, struct request *request)
{
	const char *recv_cq = option(request, "recv_cq"), *srq = option(request, "srq");
	uint64_t depth = option_number(request, "depth", 128), sge = option_number(request, "sge", 4);
	struct ibv_qp_init_attr_ex attributes = {
		.qp_type = parse_qp_type(word(request, 2, "a QP type")),
		.send_cq = find(session, needed_option(request, "cq"), KIND_CQ)->cq,
		.srq = srq ? find(session, srq, KIND_SRQ)->srq : NULL,
		.cap = {
			.max_send_wr = depth,
			.max_recv_wr = srq ? 0 : depth,
			.max_send_sge = sge,
			.max_recv_sge = srq ? 0 : sge,
			.max_inline_data = option_number(request, "inline", 64),
		},
		.sq_sig_all = option_number(request, "sig_all", 0),
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = session->pd,
	};
	struct object *object;

	check_name(session, request);
	/* The one operation that has to go through the extended interface (work.c). */
	attributes.send_ops_flags = attributes.qp_type == IBV_QPT_RC ? IBV_QP_EX_WITH_ATOMIC_WRITE : IBV_QP_EX_WITH_SEND;
	attributes.recv_cq = recv_cq ? find(session, recv_cq, KIND_CQ)->cq : attributes.send_cq;
	object = keep(session, request, KIND_QP, ibv_create_qp_ex(session->context, &attributes));
	fprintf(request->answer, " qpn=%u inline=%u", object->qp->qp_num, attributes.cap.max_inline_data);
}

/* ah NAME dgid= [sgid_index=] [hop_limit=] [traffic_class=] */
void do_ah(struct session *session, struct request *request)
{
	struct ibv_ah_attr attributes;

	check_name(session, request);
	address_vector(session, request, &attributes);
	keep(session, request, KIND_AH, ibv_create_ah(session->pd, &attributes));
}

static int destroy(struct object *object)
{
	switch (object->kind) {
	case KIND_MR: {
		void *memory = object->mr->addr;
		size_t length = object->mr->length;
		int error = ibv_dereg_mr(object->mr);

		return error ? error : (munmap(memory, length ? length : 1), 0);
	}
	case KIND_MW:
		return ibv_dealloc_mw(object->mw);
	case KIND_CQ:
		return ibv_destroy_cq(object->cq);
	case KIND_SRQ:
		return ibv_destroy_srq(object->srq);
	case KIND_QP:
		return ibv_destroy_qp(object->qp);
	case KIND_AH:
		return ibv_destroy_ah(object->ah);
	}
	return EINVAL;
}

/* destroy NAME: whatever it is */
void do_destroy(struct session *session, struct request *request)
{
	struct object *object = find_any(session, word(request, 1, "a name")), **link = &session->objects;
	int error = destroy(object);

	if (error)
		refuse(error, "cannot destroy %s: %s", object->name, strerror(error));
	while (*link != object)
		link = &(*link)->next;
	*link = object->next;
	free(object);
}
