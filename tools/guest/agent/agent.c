/*
 * The agent: creates objects on the guest's rxe0 and posts work to them, as a test on the other side
 * of a TCP connection asks. A process for each connection, a line for each request.
 */
#include "agent.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNTERS "/sys/class/infiniband/rxe0/ports/1/hw_counters"

static jmp_buf refused;
static char refusal[512];

_Noreturn void refuse(int error, const char *format, ...)
{
	va_list arguments;
	int length = snprintf(refusal, sizeof refusal, "err %d ", error);

	va_start(arguments, format);
	vsnprintf(refusal + length, sizeof refusal - length, format, arguments);
	va_end(arguments);
	longjmp(refused, 1);
}

/* The port, and the GID table by index. */
static void do_open(struct session *session, struct request *request)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry gids[MAX_GIDS];
	ssize_t count = ibv_query_gid_table(session->context, gids, MAX_GIDS, 0);
	char text[INET6_ADDRSTRLEN];

	if (ibv_query_port(session->context, PORT, &port))
		refuse(errno, "ibv_query_port: %s", strerror(errno));
	fprintf(request->answer, " state=%d max_mtu=%d active_mtu=%d max_msg_sz=%u gids=", port.state,
		128 << port.max_mtu, 128 << port.active_mtu, port.max_msg_sz);
	for (ssize_t i = 0; i < count; i++) {
		inet_ntop(AF_INET6, &gids[i].gid, text, sizeof text);
		fprintf(request->answer, "%s%u/%s", i ? "," : "", gids[i].gid_index, text);
	}
}

/* Every counter of rxe0, under the kernel's names. */
static void do_counters(struct session *session, struct request *request)
{
	DIR *folder = opendir(COUNTERS);

	(void)session;
	if (!folder)
		refuse(errno, "%s: %s", COUNTERS, strerror(errno));
	for (struct dirent *entry; (entry = readdir(folder));) {
		int fd = openat(dirfd(folder), entry->d_name, O_RDONLY);
		char text[32];
		ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

		if (length > 0 && isdigit(text[0]) && strcmp(entry->d_name, "lifespan"))
			fprintf(request->answer, " %s=%lld", entry->d_name, atoll(text));
		if (fd >= 0)
			close(fd);
	}
	closedir(folder);
}

/* Runs the rest of the line; what it prints comes back percent-encoded. */
static void do_shell(struct session *session, struct request *request)
{
	const char *command = strstr(request->line, "shell") + strlen("shell");
	int fds[2], status;
	pid_t child;
	FILE *output;

	(void)session;
	if (pipe2(fds, O_CLOEXEC) || (child = fork()) < 0)
		refuse(errno, "cannot start a shell: %s", strerror(errno));
	if (!child) {
		dup2(open("/dev/null", O_RDONLY), 0);
		dup2(fds[1], 1);
		dup2(fds[1], 2);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	close(fds[1]);
	fprintf(request->answer, " output=");
	output = fdopen(fds[0], "r");
	for (int byte; (byte = fgetc(output)) != EOF;)
		fprintf(request->answer, isgraph(byte) && byte != '%' ? "%c" : "%%%02x", byte);
	fclose(output);
	waitpid(child, &status, 0);
	fprintf(request->answer, " status=%d", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static const struct {
	const char *verb;
	void (*handle)(struct session *session, struct request *request);
} verbs[] = {
	{"open", do_open},       {"counters", do_counters}, {"shell", do_shell},   {"mr", do_mr},
	{"mw", do_mw},           {"cq", do_cq},             {"srq", do_srq},       {"limit", do_limit},
	{"qp", do_qp},           {"ah", do_ah},             {"modify", do_modify}, {"query", do_query},
	{"destroy", do_destroy}, {"attach", do_attach},     {"detach", do_detach}, {"fill", do_fill},
	{"check", do_check},     {"hash", do_hash},         {"peek", do_peek},     {"poke", do_poke},
	{"send", do_send},       {"recv", do_recv},         {"recvn", do_recvn},   {"poll", do_poll},
	{"notify", do_notify},   {"await", do_await},       {"events", do_events}, {"join", do_join},
};

static void dispatch(struct session *session, struct request *request)
{
	const char *verb = word(request, 0, "a verb");

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		if (!strcmp(verb, verbs[i].verb)) {
			verbs[i].handle(session, request);
			return;
		}
	refuse(ENOSYS, "no request %s", verb);
}

static void open_device(struct session *session)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	session->context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	if (!session->context)
		refuse(ENODEV, "no RDMA device in the guest");
	session->pd = ibv_alloc_pd(session->context);
	session->channel = ibv_create_comp_channel(session->context);
	if (!session->pd || !session->channel)
		refuse(errno, "cannot open rxe0: %s", strerror(errno));
	/* `events` and `await` ask whether something is there; they must not hang when it is not. */
	fcntl(session->context->async_fd, F_SETFL, O_NONBLOCK);
	fcntl(session->channel->fd, F_SETFL, O_NONBLOCK);
}

/* Answers one line. Static variables, since longjmp spoils automatic ones. */
static void answer(struct session *session, const char *line, FILE *peer)
{
	static struct request request;
	static char *copy, *text;
	static size_t length;

	copy = strdup(line);
	request.answer = open_memstream(&text, &length);
	if (!setjmp(refused)) {
		if (!session->context)
			open_device(session);
		parse_request(&request, line, copy);
		dispatch(session, &request);
		fclose(request.answer);
		fprintf(peer, "ok%s\n", text);
	} else {
		fclose(request.answer);
		fprintf(peer, "%s\n", refusal);
	}
	fflush(peer);
	free(text);
	free(copy);
}

static void serve(int fd)
{
	struct session session = {0};
	FILE *peer_in = fdopen(fd, "r"), *peer_out = fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 0), "w");
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, peer_in) > 0) {
		line[strcspn(line, "\r\n")] = 0;
		if (*line)
			answer(&session, line, peer_out);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	int one = 1, listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc != 2) {
		fprintf(stderr, "usage: agent PORT\n");
		return 2;
	}
	address.sin6_port = htons(atoi(argv[1]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) {
		perror("agent: cannot listen");
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		while (waitpid(-1, NULL, WNOHANG) > 0)
			; /* sessions that have ended */
		if (peer < 0)
			continue;
		setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (!fork()) {
			serve(peer);
			_exit(0);
		}
		close(peer);
	}
}
