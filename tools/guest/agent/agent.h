/*
 * What the agent's files share: a session and its objects, a request and its answer.
 * The protocol is described in ../README.md.
 */
#ifndef AGENT_H
#define AGENT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_WORDS 64
#define NAME_SIZE 32
#define PORT 1 /* rxe has one port */
#define MAX_GIDS 64

enum kind { KIND_MR, KIND_MW, KIND_CQ, KIND_SRQ, KIND_QP, KIND_AH };

/* A verbs object that the peer named. */
struct object {
	struct object *next;
	char name[NAME_SIZE];
	enum kind kind;
	union {
		struct ibv_mr *mr;
		struct ibv_mw *mw;
		struct ibv_cq *cq;
		struct ibv_srq *srq;
		struct ibv_qp *qp;
		struct ibv_ah *ah;
	};
};

/* One connection. Its process ends with it, and the kernel frees what is left. */
struct session {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct object *objects; /* newest first, so that they can be destroyed in order */
};

/* One line, taken apart: `verb word word key=value key=value`. */
struct request {
	const char *line; /* all of it, as it came */
	char *words[MAX_WORDS];
	int word_count; /* those without `=`, the verb first */
	char *options[MAX_WORDS];
	int option_count;
	FILE *answer; /* ` key=value`s, sent after `ok` */
};

/* Answers `err ERRNO text` and leaves the handler. */
_Noreturn void refuse(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* request.c */
void parse_request(struct request *request, const char *line, char *copy);
const char *word(const struct request *request, int index, const char *what);
uint64_t word_number(const struct request *request, int index, const char *what);
const char *option(const struct request *request, const char *key);
uint64_t option_number(const struct request *request, const char *key, uint64_t fallback);
const char *needed_option(const struct request *request, const char *key);
bool has_word(const struct request *request, const char *text);
uint64_t parse_number(const char *text, const char *what);

/* objects.c */
struct object *find(struct session *session, const char *name, enum kind kind);
struct object *find_any(struct session *session, const char *name);
void do_mr(struct session *session, struct request *request);
void do_mw(struct session *session, struct request *request);
void do_cq(struct session *session, struct request *request);
void do_srq(struct session *session, struct request *request);
void do_limit(struct session *session, struct request *request);
void do_qp(struct session *session, struct request *request);
void do_ah(struct session *session, struct request *request);
void do_destroy(struct session *session, struct request *request);

/* connect.c */
union ibv_gid parse_gid(const char *text);
void address_vector(struct session *session, struct request *request, struct ibv_ah_attr *ah);
void do_modify(struct session *session, struct request *request);
void do_query(struct session *session, struct request *request);
void do_attach(struct session *session, struct request *request);
void do_detach(struct session *session, struct request *request);
void do_join(struct session *session, struct request *request);

/* memory.c */
void do_fill(struct session *session, struct request *request);
void do_check(struct session *session, struct request *request);
void do_hash(struct session *session, struct request *request);
void do_peek(struct session *session, struct request *request);
void do_poke(struct session *session, struct request *request);

/* work.c */
void do_send(struct session *session, struct request *request);
void do_recv(struct session *session, struct request *request);
void do_recvn(struct session *session, struct request *request);

/* completion.c */
void do_poll(struct session *session, struct request *request);
void do_notify(struct session *session, struct request *request);
void do_await(struct session *session, struct request *request);
void do_events(struct session *session, struct request *request);

#endif
