// SPDX-License-Identifier: GPL-2.0
/*
 * Registrations: one per event channel and receive QP. Twice, never, too
 * late, from the wrong place, many at once; two channels of one file, two files
 * of one process, one file of two processes. Which process may query, list,
 * modify and destroy which QP.
 *
 * tags: debug vmlx4 long-vmlx4 vmlx5 every-kernel traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/registration"
#define OTHER_FILE "/tmp/registration-other"

/* More than the kernel lists without releasing the lock, in a page, too. */
enum { MANY = 150, PAGE = 70, DEAD = 0xabcdef };

static struct actor a, b, stranger;
static struct member_info *ma, *mb, *ms;

static int registrations(struct domain domain, uint32_t qp_num)
{
	struct xrc_rcv_qp_info info;
	int result = rcv_query(domain, qp_num, NULL, &info);

	return result ? result : (int)info.registrations;
}

/* ---- acts ---- */

static int twice(void *argument)
{
	struct registration first, again;

	(void)argument;
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &first));
	CHECK(!rcv_reg(member.domain, first.qp_num, NO_CHANNEL, &again));
	CHECK(registrations(member.domain, first.qp_num) == 1);
	CHECK(!rcv_unreg(&first));
	CHECK(!rcv_unreg(&first));
	CHECK(rcv_reg(member.domain, first.qp_num, NO_CHANNEL, &again) == -EINVAL);
	return 0;
}

/* ALLOC without a channel registers nothing: its domain has to keep the QP. */
static int none(void *argument)
{
	struct registration registration;

	(void)argument;
	CHECK(rcv_alloc(member.domain, 0, NULL, NO_REGISTRATION, &registration) == -EINVAL);
	CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_REGISTRATION,
			 &registration));
	CHECK(registrations(member.domain, registration.qp_num) == 0);
	return rcv_destroy(member.domain, registration.qp_num);
}

/* Two channels of a file; each ends with its descriptor. */
static int two_channels(void *argument)
{
	int channels[] = { rcv_channel(member.domain), rcv_channel(member.domain) };
	struct registration first, second;

	(void)argument;
	CHECK(channels[0] >= 0 && channels[1] >= 0);
	CHECK(!rcv_alloc(member.domain, 0, NULL, channels[0], &first));
	CHECK(!rcv_reg(member.domain, first.qp_num, channels[1], &second));
	CHECK(registrations(member.domain, first.qp_num) == 2);
	CHECK(!close(channels[0]));
	CHECK(registrations(member.domain, first.qp_num) == 1);
	CHECK(rcv_unreg(&first) == -EBADF);
	CHECK(!close(channels[1]));
	CHECK(registrations(member.domain, first.qp_num) == -EINVAL);
	return 0;
}

/* An array is processed in order, up to the first that fails. */
static int arrays(void *argument)
{
	enum { QPS = 64 };

	struct member_info *member_info = argument;
	struct registration created[QPS];
	uint32_t numbers[QPS + 1], done, i;
	int channel = rcv_channel(member.domain);
	struct file other;

	file_open(&other, member_info->domain_file);
	for (i = 0; i < QPS; i++) {
		CHECK(!rcv_alloc(other.domain, 0, NULL, NO_CHANNEL, &created[i]));
		numbers[i] = created[i].qp_num;
	}

	CHECK(!rcv_reg_many(member.domain.uverbs_fd, channel, numbers, QPS, &done) && done == QPS);
	/* Again, and with one that does not exist between them. */
	CHECK(!rcv_reg_many(member.domain.uverbs_fd, channel, numbers, QPS, &done) && done == QPS);
	for (i = 0; i < QPS; i++)
		CHECK(registrations(member.domain, numbers[i]) == 2);
	CHECK(!rcv_unreg_many(member.domain.uverbs_fd, channel, numbers, QPS, &done) && done == QPS);
	numbers[QPS] = numbers[QPS / 2];
	numbers[QPS / 2] = DEAD;
	CHECK(rcv_reg_many(member.domain.uverbs_fd, channel, numbers, QPS + 1, &done) == -EINVAL);
	CHECK(done == QPS / 2);
	for (i = 0; i <= QPS; i++)
		if (i != QPS / 2)
			CHECK(registrations(member.domain, numbers[i]) == 1 + (i < QPS / 2));
	/* A number that is not registered is skipped. */
	CHECK(!rcv_unreg_many(member.domain.uverbs_fd, channel, numbers, QPS + 1, &done) &&
	      done == QPS + 1);
	CHECK(registrations(member.domain, numbers[0]) == 1);

	/* The last registrations of many QPs, at once. */
	numbers[QPS / 2] = numbers[QPS];
	CHECK(!rcv_reg_many(member.domain.uverbs_fd, channel, numbers, QPS, NULL));
	CHECK(!file_close(&other));
	for (i = 0; i < QPS; i++)
		CHECK(registrations(member.domain, numbers[i]) == 1);
	CHECK(!rcv_unreg_many(member.domain.uverbs_fd, channel, numbers, QPS, &done) && done == QPS);
	for (i = 0; i < QPS; i++)
		CHECK(registrations(member.domain, numbers[i]) == -EINVAL);
	CHECK(!close(channel));
	return 0;
}

/* UNREG of a number that is not registered ends no registration with a number beside it. */
static int beside(void *argument)
{
	enum { QPS = 3 };

	struct registration created[QPS], none;
	unsigned int i;

	(void)argument;
	for (i = 0; i < QPS; i++)
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_CHANNEL,
				 &created[i]));
	none = created[0];
	none.qp_num = 0;
	CHECK(!rcv_unreg(&none));
	CHECK(!rcv_unreg(&created[1]));
	CHECK(!rcv_unreg(&created[1]));
	for (i = 0; i < QPS; i++)
		CHECK(registrations(member.domain, created[i].qp_num) == (i != 1));
	for (i = 0; i < QPS; i++) {
		CHECK(!rcv_unreg(&created[i]));
		CHECK(!rcv_destroy(member.domain, created[i].qp_num));
	}
	return 0;
}

/* A channel is of one domain, and of one file. */
static int of_the_domain(void *argument)
{
	struct member_info *member_info = argument;
	struct registration registration;
	struct domain elsewhere;
	struct file other;
	int channel;

	file_open(&other, member_info->domain_file);
	elsewhere = domain_of(node_open_domain(&member.node, OTHER_FILE));
	channel = rcv_channel(elsewhere);
	CHECK(channel >= 0);
	CHECK(rcv_alloc(member.domain, 0, NULL, channel, &registration) == -EINVAL);
	CHECK(rcv_alloc(other.domain, 0, NULL, channel, &registration) == -EBADF);
	CHECK(rcv_reg(member.domain, member_info->qp_num, channel, &registration) == -EINVAL);
	CHECK(!close(channel));
	CHECK(!file_close(&other));
	return 0;
}

static int dead(void *argument)
{
	struct registration registration;

	(void)argument;
	CHECK(rcv_reg(member.domain, DEAD, NO_CHANNEL, &registration) == -EINVAL);
	CHECK(rcv_reg(member.domain, 0, NO_CHANNEL, &registration) == -EINVAL);
	CHECK(rcv_reg(member.domain, ~0u, NO_CHANNEL, &registration) == -EINVAL);
	CHECK(rcv_to_state(member.domain, DEAD, IBV_QPS_ERR) == -EINVAL);
	CHECK(rcv_query(member.domain, DEAD, NULL, NULL) == -EINVAL);
	CHECK(rcv_destroy(member.domain, DEAD) == -EINVAL);
	return 0;
}

/* An event mask may have each bit of QUERY_CAPS's event_types, or none. */
static int event_masks(void *argument)
{
	struct registration first, second;
	struct member_info *member_info = argument;
	struct xrc_rcv_caps caps;
	struct file other;
	uint64_t events;
	unsigned int i;
	int channel;

	CHECK(!rcv_caps(member.domain.uverbs_fd, &caps) && caps.version >= 2);
	file_open(&other, member_info->domain_file);
	CHECK(!rcv_alloc(other.domain, 0, NULL, NO_CHANNEL, &first));
	for (i = 0; i <= 64; i++) {
		bool known;

		events = i < 64 ? 1ull << i : 0;
		known = !(events & ~caps.event_types);
		channel = rcv_channel_with(member.domain, NULL, &events);
		CHECK(known ? channel >= 0 : channel == -EINVAL);
		if (!known)
			continue;
		CHECK(!rcv_reg(member.domain, first.qp_num, channel, &second));
		CHECK(registrations(member.domain, first.qp_num) == 2);
		CHECK(!rcv_alloc(member.domain, 0, NULL, channel, &second));
		CHECK(!close(channel));
		CHECK(registrations(member.domain, first.qp_num) == 1);
	}
	events = caps.event_types;
	channel = rcv_channel_with(member.domain, NULL, &events);
	CHECK(channel >= 0 && !close(channel));
	events = ~0ull;
	CHECK(rcv_channel_with(member.domain, NULL, &events) == -EINVAL);
	CHECK(!rcv_unreg(&first));
	CHECK(!file_close(&other));
	return 0;
}

/* Not registered, but of the domain. */
static int holder(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_to_init(&member.node);
	uint32_t number = member_info->qp_num;

	CHECK(!rcv_modify(member.domain, number, &attr));
	CHECK(member_state(member_info) == IBV_QPS_INIT);
	CHECK(!rcv_to_state(member.domain, number, IBV_QPS_ERR));
	CHECK(!rcv_to_state(member.domain, number, IBV_QPS_RESET));
	CHECK(registrations(member.domain, number) == 1);
	CHECK(rcv_destroy(member.domain, number) == -EINVAL);
	return 0;
}

static int outsider(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_to_init(&member.node);
	uint32_t number = member_info->qp_num, count = 0, total = 77;
	struct registration registration;

	CHECK(rcv_modify(member.domain, number, &attr) == -EINVAL);
	CHECK(rcv_query(member.domain, number, &attr, NULL) == -EINVAL);
	CHECK(rcv_reg(member.domain, number, NO_CHANNEL, &registration) == -EINVAL);
	CHECK(rcv_destroy(member.domain, number) == -EINVAL);
	CHECK(!rcv_list(member.domain, 0, NULL, &count, &total) && total == 0);
	return 0;
}

/* Left's device, and there the domain of the same file. */
static int join_left(void *argument)
{
	struct member_info *member_info = argument;

	member.member_info = member_info;
	node_enter("left");
	node_open(&member.node, "left");
	member.xrcd = node_open_domain(&member.node, member_info->domain_file);
	member.domain = domain_of(member.xrcd);
	return 0;
}

/* One process, two open files; the QP is there for whichever remains. */
static int two_files(void *argument)
{
	struct member_info *member_info = argument;
	struct registration first, second;
	struct file other;

	file_open(&other, member_info->domain_file);
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &first));
	CHECK(!rcv_reg(other.domain, first.qp_num, NO_CHANNEL, &second));
	CHECK(registrations(member.domain, first.qp_num) == 2);
	CHECK(!rcv_unreg(&first));
	CHECK(registrations(member.domain, first.qp_num) == 1);
	CHECK(!rcv_reg(member.domain, first.qp_num, NO_CHANNEL, &first));
	/* The file's end is the registration's. */
	CHECK(!file_close(&other));
	CHECK(registrations(member.domain, first.qp_num) == 1);
	CHECK(!rcv_unreg(&first));
	CHECK(registrations(member.domain, first.qp_num) == -EINVAL);
	return 0;
}

/* A child has the parent's file: the registration is both's, until both have exited. */
static int forked_child(void *argument)
{
	struct member_info *member_info = argument;
	struct registration registration;
	pid_t child;
	int result;

	result = rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &member.registration);
	if (result)
		return result;
	member_info->qp_num = member.registration.qp_num;
	child = fork();
	if (child) {
		member_info->child = child;
		return child < 0 ? -errno : 0;
	}

	/* The child: shows that it is the same channel, then stays until it is killed. */
	if (rcv_reg(member.domain, member_info->qp_num, member.registration.channel,
		    &registration) || registrations(member.domain, member_info->qp_num) != 1)
		_exit(1);
	member_info->flags = 1;
	for (;;)
		pause();
}

/* With room for so many bytes of elements. */
static int list_bytes(struct xrc_rcv_qp_info *infos, uint16_t length, uint32_t *count)
{
	const uint32_t size = sizeof(*infos);
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN);
	call_object(&call, XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, member.domain.handle);
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos, length);
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, count, sizeof(*count));
	call_in(&call, XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, &size, sizeof(size));
	return call_run(&call, member.domain.uverbs_fd);
}

/* Elements are written whole: what is left of the room is not touched. */
static int rooms(void *argument)
{
	enum { QPS = 4, UNTOUCHED = 0xee };

	struct registration registration[QPS];
	struct xrc_rcv_qp_info all[QPS], infos[QPS], untouched;
	uint32_t count = QPS, whole, i;

	(void)argument;
	memset(&untouched, UNTOUCHED, sizeof(untouched));
	for (i = 0; i < QPS; i++)
		CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration[i]));
	CHECK(!rcv_list(member.domain, 0, all, &count, NULL) && count == QPS);
	/* Up to 8 bytes are in the attribute itself. */
	for (i = 9; i < sizeof(infos); i++) {
		memset(infos, UNTOUCHED, sizeof(infos));
		whole = i / sizeof(infos[0]);
		CHECK(!list_bytes(infos, i, &count) && count == whole);
		CHECK(!memcmp(infos, all, whole * sizeof(all[0])));
		CHECK(!memcmp(&infos[whole], &untouched, sizeof(untouched)));
	}
	for (i = 0; i < QPS; i++)
		CHECK(!rcv_unreg(&registration[i]));
	return 0;
}

static int pages(void *argument)
{
	const struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	struct registration registration[MANY];
	static const uint32_t no_sizes[] = { 0, 8, 20, 264, 1024 };
	struct {
		struct xrc_rcv_qp_info info;
		uint64_t unknown[3];
	} longer[MANY + 1];
	struct xrc_rcv_qp_info infos[MANY + 1];
	uint32_t after = 0, count, total, seen = 0, i, j;

	(void)argument;
	for (i = 0; i < MANY; i++)
		CHECK(!rcv_alloc(member.domain, i % 2 ? XRC_RCV_ALLOC_LIFETIME_DOMAIN : 0, NULL,
				 NO_CHANNEL, &registration[i]));
	CHECK(!rcv_modify(member.domain, registration[4].qp_num, &init));

	/* By pages: all, once, in ascending order, each as it is. */
	for (;;) {
		count = PAGE;
		CHECK(!rcv_list(member.domain, after, infos, &count, &total));
		CHECK(total == MANY && count <= PAGE);
		if (!count)
			break;
		for (i = 0; i < count; i++) {
			CHECK(infos[i].qp_num > after);
			after = infos[i].qp_num;
			for (j = 0; j < MANY; j++)
				if (registration[j].qp_num == after)
					break;
			CHECK(j < MANY);
			CHECK(infos[i].registrations == 1);
			CHECK(infos[i].lifetime == j % 2);
			CHECK(infos[i].state == (j == 4 ? IBV_QPS_INIT : IBV_QPS_RESET));
			seen++;
		}
	}
	CHECK(seen == MANY);

	/* At once, with room to spare; and nothing but the number of them. */
	count = MANY + 1;
	CHECK(!rcv_list(member.domain, 0, infos, &count, NULL) && count == MANY);
	for (i = 1; i < MANY; i++)
		CHECK(infos[i].qp_num > infos[i - 1].qp_num);
	count = 0;
	CHECK(!rcv_list(member.domain, 0, NULL, &count, &total) && total == MANY && !count);
	count = 1;
	CHECK(!rcv_list(member.domain, ~0u, infos, &count, NULL) && !count);

	/* A caller that knows more of an element finds 0 in the rest; sizes that are none. */
	memset(longer, 0xee, sizeof(longer));
	count = MANY + 1;
	CHECK(!rcv_list_sized(member.domain, longer, sizeof(longer[0]), &count) && count == MANY);
	for (i = 0; i < MANY; i++) {
		CHECK(!memcmp(&longer[i].info, &infos[i], sizeof(infos[i])));
		CHECK(!longer[i].unknown[0] && !longer[i].unknown[2]);
	}
	CHECK(longer[MANY].info.qp_num == 0xeeeeeeee);
	for (i = 0; i < ARRAY_SIZE(no_sizes); i++) {
		count = 1;
		CHECK(rcv_list_sized(member.domain, longer, no_sizes[i], &count) == -EINVAL);
	}

	for (i = 0; i < MANY; i++)
		CHECK(!rcv_unreg(&registration[i]));
	count = MANY;
	CHECK(!rcv_list(member.domain, 0, infos, &count, &total));
	CHECK(count == MANY / 2 && total == MANY / 2);
	for (i = 0; i < count; i++) {
		CHECK(infos[i].lifetime == XRC_RCV_LIFETIME_DOMAIN && !infos[i].registrations);
		CHECK(!rcv_destroy(member.domain, infos[i].qp_num));
	}
	return 0;
}

static int destroy_busy(void *argument)
{
	struct member_info *member_info = argument;

	CHECK(rcv_destroy(member.domain, member_info->qp_num) == -EBUSY);
	return 0;
}

/* The caller's own registration keeps it, too. */
static int destroy_free(void *argument)
{
	struct member_info *member_info = argument;

	CHECK(rcv_destroy(member.domain, member_info->qp_num) == -EBUSY);
	CHECK(!rcv_unreg(&member.registration));
	CHECK(!rcv_destroy(member.domain, member_info->qp_num));
	CHECK(registrations(member.domain, member_info->qp_num) == -EINVAL);
	CHECK(rcv_destroy(member.domain, member_info->qp_num) == -EINVAL);
	return 0;
}

static int destroy_of_registrations(void *argument)
{
	struct registration registration;

	(void)argument;
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration));
	CHECK(rcv_destroy(member.domain, registration.qp_num) == -EINVAL);
	CHECK(registrations(member.domain, registration.qp_num) == 1);
	CHECK(!rcv_unreg(&registration));
	return 0;
}

/* ---- scenarios ---- */

static bool destroys(void)
{
	ma->flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN;
	if (!DO(a, member_alloc, ma))
		return false;
	ma->flags = 0;
	mb->qp_num = ma->qp_num;
	/* Whether the caller is registered too makes no difference. */
	return DO(b, destroy_busy, mb) && DO(b, member_reg, mb) && DO(b, destroy_busy, mb) &&
	       DO(a, destroy_busy, ma) && DO(a, member_unreg, NULL) && DO(b, destroy_free, mb) &&
	       !qp_is_shown(ma->qp_num) && DO(a, destroy_of_registrations, NULL);
}

/* A QP is taken out of its domain before it is destroyed. */
static bool is_left(void)
{
	return actor_do(&b, member_state, mb) >= 0 || qp_is_shown(ma->qp_num);
}

static bool shared_with_child(void)
{
	unsigned int tries;
	bool right;

	ma->flags = 0;
	right = DO(a, forked_child, ma);
	mb->qp_num = ma->qp_num;
	while (right && !__atomic_load_n(&ma->flags, __ATOMIC_ACQUIRE) && !kill(ma->child, 0))
		usleep(10000);
	right &= ma->flags == 1;
	actor_kill(&a);
	usleep(200000);
	right &= actor_do(&b, member_state, mb) == IBV_QPS_RESET && qp_is_shown(ma->qp_num);
	kill(ma->child, SIGKILL);
	/* A grandchild: not ours to wait for. */
	for (tries = 0; tries < PATIENCE_MS / 10 && is_left(); tries++)
		usleep(10000);
	return right && actor_do(&b, member_state, mb) == -EINVAL && !is_left();
}

static bool other_device(void)
{
	struct member_info *left = member_info_new(DOMAIN_FILE, 0, 0);
	struct actor elsewhere;
	bool right;

	left->qp_num = ma->qp_num;
	actor_start(&elsewhere);
	right = DO(elsewhere, join_left, left) && DO(elsewhere, outsider, left);
	actor_exit(&elsewhere);
	return right;
}

int main(void)
{
	struct counts before;

	ktap_start("registrations and permissions", nodes_share_device() ? 17 : 18);
	before = count_objects();
	ma = member_info_new(DOMAIN_FILE, 0, 0);
	mb = member_info_new(DOMAIN_FILE, 0, 0);
	ms = member_info_new(OTHER_FILE, 0, 0);
	actor_start(&a);
	actor_start(&b);
	actor_start(&stranger);
	if (!(DO(a, member_join, ma) && DO(b, member_join, mb) && DO(stranger, member_join, ms)))
		errx(1, "the actors are not ready");

	ktap_result(DO(a, twice, NULL), "a channel registers once, whatever the number of calls");
	ktap_result(DO(a, none, NULL), "ALLOC without a channel registers nothing");
	ktap_result(DO(a, two_channels, NULL), "two channels of a file are two registrations");
	ktap_result(DO(a, arrays, ma), "REG and UNREG process arrays in order");
	ktap_result(DO(a, beside, NULL), "UNREG ends registrations with the numbers that it names");
	ktap_result(DO(a, dead, NULL), "a number that is no receive QP is refused");
	ktap_result(DO(a, event_masks, ma), "REG and ALLOC refuse unknown events");

	ktap_result(DO(a, member_alloc, ma), "A creates a QP");
	mb->qp_num = ms->qp_num = ma->qp_num;
	ktap_result(DO(b, of_the_domain, mb), "a channel of another domain, or file, is refused");
	ktap_result(DO(b, holder, mb), "a holder of the domain modifies without registering");
	ktap_result(DO(stranger, outsider, ms), "a holder of another domain is refused every call");
	if (!nodes_share_device())
		ktap_result(other_device(), "a holder of the same file's domain on another device is refused every call");
	DO(a, member_unreg, NULL);

	ktap_result(DO(a, two_files, ma), "two files of a process are two registrations");
	ktap_result(DO(a, rooms, NULL), "a list has as many receive QPs as fit whole");
	ktap_result(DO(a, pages, NULL), "a domain lists its receive QPs, page by page");
	ktap_result(destroys(), "DESTROY destroys a QP that no channel is registered with");
	ktap_result(shared_with_child(), "a forked child shares the file and keeps the QP");
	actor_exit(&b);
	actor_exit(&stranger);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	unlink(OTHER_FILE);
	return ktap_end();
}
