// SPDX-License-Identifier: GPL-2.0

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "actor.h"

struct order {
	act *function;		/* NULL: the end */
	void *argument;
};

void *share(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "%zu bytes for all", size);
	return memory;
}

static _Noreturn void serve(int socket)
{
	struct order order;
	int result;

	while (read(socket, &order, sizeof(order)) == sizeof(order) && order.function) {
		result = order.function(order.argument);
		if (write(socket, &result, sizeof(result)) != sizeof(result))
			break;
	}
	exit(0);
}

void actor_start(struct actor *actor)
{
	pid_t director = getpid();
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		err(1, "socket pair");
	actor->pid = fork();
	if (actor->pid < 0)
		err(1, "fork");
	if (!actor->pid) {
		/* A director that fails leaves no process behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != director)
			_exit(1);
		close(sockets[0]);
		serve(sockets[1]);
	}
	close(sockets[1]);
	actor->socket = sockets[0];
}

void actor_begin(struct actor *actor, act *function, void *argument)
{
	struct order order = { function, argument };

	/* If the actor has exited, the missing answer will show it. */
	(void)!send(actor->socket, &order, sizeof(order), MSG_NOSIGNAL);
}

int actor_wait(struct actor *actor)
{
	int result;

	return read(actor->socket, &result, sizeof(result)) == sizeof(result) ?
	       result : -ESRCH;
}

int actor_do(struct actor *actor, act *function, void *argument)
{
	actor_begin(actor, function, argument);
	return actor_wait(actor);
}

bool succeeded(const char *what, int result)
{
	if (result)
		ktap_note("%s: %s (%d)", what, strerror(-result), result);
	return !result;
}

static void reap(struct actor *actor)
{
	if (waitpid(actor->pid, NULL, 0) != actor->pid)
		err(1, "process %d", actor->pid);
	close(actor->socket);
	actor->pid = 0;
}

void actor_exit(struct actor *actor)
{
	if (!actor->pid)
		return;
	actor_begin(actor, NULL, NULL);
	reap(actor);
}

void actor_kill(struct actor *actor)
{
	if (!actor->pid)
		return;
	kill(actor->pid, SIGKILL);
	reap(actor);
}
