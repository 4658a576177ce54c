/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An actor: a process of its own that runs functions for its director, the
 * process that forked it, one after the other. So a scenario of many
 * processes reads from top to bottom, and a kill hits where the text says.
 *
 * Functions get pointers into memory from share() if other processes read
 * their results. Static variables are the actor's own. A director has no RDMA
 * device open, so that the end of an actor ends all use of its objects.
 */
#ifndef ACTOR_H
#define ACTOR_H

#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "ktap.h"

struct actor {
	pid_t pid;
	int socket;
};

typedef int act(void *argument);

/* Ends an act that finds something else than it expects. */
#define CHECK(condition) ktap_check(condition, return -EBADMSG)

/* Memory that all actors started later see. */
void *share(size_t size);

void actor_start(struct actor *actor);
/* Returns the return value of the function; -ESRCH if the actor has exited. */
int actor_do(struct actor *actor, act *function, void *argument);
/* The same in two steps: the actor works meanwhile. */
void actor_begin(struct actor *actor, act *function, void *argument);
int actor_wait(struct actor *actor);

/* Reports the return value of an act that had to succeed. */
bool succeeded(const char *what, int result);
#define DO(actor, act, argument) \
	succeeded(#actor ": " #act, actor_do(&(actor), act, argument))

/* Both return when the process has exited, at once if it had already. */
void actor_exit(struct actor *actor);
void actor_kill(struct actor *actor);

#endif
