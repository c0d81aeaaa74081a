/* Queue pair states, addresses, multicast membership. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

/* An IPv6 address, or an IPv4 address, which is mapped. */
union ibv_gid parse_gid(const char *text)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	if (inet_pton(AF_INET, text, gid.raw + 12) != 1 && inet_pton(AF_INET6, text, gid.raw) != 1)
		refuse(EINVAL, "neither an IPv4 nor an IPv6 address: %s", text);
	return gid;
}

/* IPv4, IPv6, or (AF_UNSPEC) link-local IPv6: only GIDs of one class reach each other. */
static int address_class(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (!memcmp(gid->raw, mapped, sizeof mapped))
		return AF_INET;
	return gid->raw[0] == 0xfe && gid->raw[1] == 0x80 ? AF_UNSPEC : AF_INET6;
}

/* The first of our GIDs that can speak to `dgid`. */
static int source_index(struct session *session, const union ibv_gid *dgid)
{
	struct ibv_gid_entry gids[MAX_GIDS];
	ssize_t count = ibv_query_gid_table(session->context, gids, MAX_GIDS, 0);

	for (ssize_t i = 0; i < count; i++)
		if (address_class(&gids[i].gid) == address_class(dgid))
			return gids[i].gid_index;
	refuse(EADDRNOTAVAIL, "no GID of ours is of dgid's kind: give sgid_index=");
}

void address_vector(struct session *session, struct request *request, struct ibv_ah_attr *ah)
{
	union ibv_gid dgid = parse_gid(needed_option(request, "dgid"));

	*ah = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = PORT,
		.sl = option_number(request, "sl", 0),
		.grh = {
			.dgid = dgid,
			.hop_limit = option_number(request, "hop_limit", 64),
			.traffic_class = option_number(request, "traffic_class", 0),
			.flow_label = option_number(request, "flow_label", 0),
		},
	};
	ah->grh.sgid_index = option(request, "sgid_index") ? option_number(request, "sgid_index", 0)
							   : (uint64_t)source_index(session, &dgid);
}

static const char *const states[] = {"reset", "init", "rtr", "rts", "sqd", "sqe", "err"};

static enum ibv_qp_state parse_state(const char *text)
{
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		if (!strcmp(text, states[i]))
			return i;
	refuse(EINVAL, "no QP state %s", text);
}

/* Which QP types a default is for. */
enum { RC = 1 << IBV_QPT_RC, UC = 1 << IBV_QPT_UC, UD = 1 << IBV_QPT_UD, CONNECTED = RC | UC, ALL = RC | UC | UD };

/* The numeric attributes: key, mask bit, and the value a transition takes when the request names none. */
static const struct attribute {
	const char *key;
	int mask;
	enum ibv_qp_state state; /* whose transition needs it */
	int types;
	uint64_t fallback;
} attributes[] = {
	{"pkey_index", IBV_QP_PKEY_INDEX, IBV_QPS_INIT, ALL, 0},
	{"port", IBV_QP_PORT, IBV_QPS_INIT, ALL, PORT},
	{"access", IBV_QP_ACCESS_FLAGS, IBV_QPS_INIT, CONNECTED,
	 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC},
	{"qkey", IBV_QP_QKEY, IBV_QPS_INIT, UD, 0x11111111},
	{"mtu", IBV_QP_PATH_MTU, IBV_QPS_RTR, CONNECTED, 4096},
	{"dest_qpn", IBV_QP_DEST_QPN, IBV_QPS_RTR, CONNECTED, 0},
	{"rq_psn", IBV_QP_RQ_PSN, IBV_QPS_RTR, CONNECTED, 0},
	{"max_dest_rd_atomic", IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QPS_RTR, RC, 16},
	{"min_rnr_timer", IBV_QP_MIN_RNR_TIMER, IBV_QPS_RTR, RC, 12},
	{"sq_psn", IBV_QP_SQ_PSN, IBV_QPS_RTS, ALL, 0},
	{"timeout", IBV_QP_TIMEOUT, IBV_QPS_RTS, RC, 14},
	{"retry_cnt", IBV_QP_RETRY_CNT, IBV_QPS_RTS, RC, 7},
	{"rnr_retry", IBV_QP_RNR_RETRY, IBV_QPS_RTS, RC, 7},
	{"max_rd_atomic", IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_RTS, RC, 16},
};

static enum ibv_mtu parse_mtu(uint64_t bytes)
{
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
		if (bytes == 128ull << mtu)
			return mtu;
	refuse(EINVAL, "mtu %lu: want 256, 512, 1024, 2048 or 4096", bytes);
}

static void set_attribute(struct ibv_qp_attr *attr, int mask, uint64_t value)
{
	switch (mask) {
	case IBV_QP_PKEY_INDEX: attr->pkey_index = value; break;
	case IBV_QP_PORT: attr->port_num = value; break;
	case IBV_QP_ACCESS_FLAGS: attr->qp_access_flags = value; break;
	case IBV_QP_QKEY: attr->qkey = value; break;
	case IBV_QP_PATH_MTU: attr->path_mtu = parse_mtu(value); break;
	case IBV_QP_DEST_QPN: attr->dest_qp_num = value; break;
	case IBV_QP_RQ_PSN: attr->rq_psn = value; break;
	case IBV_QP_MAX_DEST_RD_ATOMIC: attr->max_dest_rd_atomic = value; break;
	case IBV_QP_MIN_RNR_TIMER: attr->min_rnr_timer = value; break;
	case IBV_QP_SQ_PSN: attr->sq_psn = value; break;
	case IBV_QP_TIMEOUT: attr->timeout = value; break;
	case IBV_QP_RETRY_CNT: attr->retry_cnt = value; break;
	case IBV_QP_RNR_RETRY: attr->rnr_retry = value; break;
	case IBV_QP_MAX_QP_RD_ATOMIC: attr->max_rd_atomic = value; break;
	}
}

/* modify QP state=… key=value… [bare]: what the transition needs and the request does not name gets a
 * default, unless the word `bare` is there */
void do_modify(struct session *session, struct request *request)
{
	struct ibv_qp *qp = find(session, word(request, 1, "a QP"), KIND_QP)->qp;
	const char *state = option(request, "state");
	bool defaults = state && !has_word(request, "bare");
	struct ibv_qp_attr attr = {.qp_state = state ? parse_state(state) : IBV_QPS_RESET};
	int error, mask = state ? IBV_QP_STATE : 0;
	/* RTS is reached from SQD too, where the attributes of the way from RTR are not wanted. */
	if (attr.qp_state == IBV_QPS_RTS && qp->state != IBV_QPS_RTR)
		defaults = false;

	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		const struct attribute *a = &attributes[i];
		bool wanted = defaults && a->state == attr.qp_state && (a->types & 1 << qp->qp_type);

		if (wanted || option(request, a->key)) {
			set_attribute(&attr, a->mask, option_number(request, a->key, a->fallback));
			mask |= a->mask;
		}
	}
	if (option(request, "dgid")) {
		address_vector(session, request, &attr.ah_attr);
		mask |= IBV_QP_AV;
	}
	error = ibv_modify_qp(qp, &attr, mask);
	if (error)
		refuse(error, "ibv_modify_qp with mask 0x%x: %s", mask, strerror(error));
}

/* query QP */
void do_query(struct session *session, struct request *request)
{
	struct ibv_qp *qp = find(session, word(request, 1, "a QP"), KIND_QP)->qp;
	struct ibv_qp_init_attr created;
	struct ibv_qp_attr attr;
	int error = ibv_query_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU |
					 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_TIMEOUT |
					 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER,
				 &created);

	if (error)
		refuse(error, "ibv_query_qp: %s", strerror(error));
	fprintf(request->answer, " state=%s sq_psn=%u rq_psn=%u dest_qpn=%u mtu=%d max_rd_atomic=%u max_dest_rd_atomic=%u",
		states[attr.qp_state], attr.sq_psn, attr.rq_psn, attr.dest_qp_num, 128 << attr.path_mtu,
		attr.max_rd_atomic, attr.max_dest_rd_atomic);
	fprintf(request->answer, " timeout=%u retry_cnt=%u rnr_retry=%u min_rnr_timer=%u", attr.timeout, attr.retry_cnt,
		attr.rnr_retry, attr.min_rnr_timer);
}

/* attach QP mgid=, detach QP mgid= */
void do_attach(struct session *session, struct request *request)
{
	union ibv_gid mgid = parse_gid(needed_option(request, "mgid"));
	int error = ibv_attach_mcast(find(session, word(request, 1, "a QP"), KIND_QP)->qp, &mgid, 0);

	if (error)
		refuse(error, "ibv_attach_mcast: %s", strerror(error));
}

void do_detach(struct session *session, struct request *request)
{
	union ibv_gid mgid = parse_gid(needed_option(request, "mgid"));
	int error = ibv_detach_mcast(find(session, word(request, 1, "a QP"), KIND_QP)->qp, &mgid, 0);

	if (error)
		refuse(error, "ibv_detach_mcast: %s", strerror(error));
}

/* join mgid=: has the guest's IP stack join a group on eth0, as long as the session lasts. Attaching a QP does not (rxe only
 * lets the frames of an IPv6 group in, and of an IPv4 group not even those), so without this nothing arrives. */
void do_join(struct session *session, struct request *request)
{
	union ibv_gid mgid = parse_gid(needed_option(request, "mgid"));
	int family = address_class(&mgid) == AF_INET ? AF_INET : AF_INET6;
	struct group_req group = {.gr_interface = if_nametoindex("eth0")};
	int fd = socket(family, SOCK_DGRAM, 0);

	(void)session;
	group.gr_group.ss_family = family;
	if (family == AF_INET)
		memcpy(&((struct sockaddr_in *)&group.gr_group)->sin_addr, mgid.raw + 12, 4);
	else
		memcpy(&((struct sockaddr_in6 *)&group.gr_group)->sin6_addr, mgid.raw, 16);
	if (fd < 0 || setsockopt(fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &group, sizeof group))
		refuse(errno, "cannot join the group: %s", strerror(errno));
}
