// SPDX-License-Identifier: GPL-2.0
/*
 * User memory whose pages do not come (by userfaultfd, and then in a file of a FUSE file system): a
 * process each is stopped in the copy of every argument and result of every method, of what follows
 * those that may be longer, and of records that it reads. Meanwhile all others do what they do,
 * which is shown by its order: they have finished, and those are still stopped. Then the pages
 * come, and every call ends as if nothing had happened; or its process is killed; or the device is
 * being removed.
 *
 * uverbs removes a device when no call of a process is in progress. A reader is none.
 *
 * tags: stock long-debug traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"
#include "withheld_page.h"

#define DOMAIN_FILE "/tmp/stalled"
#define FILES "/tmp/stalled.pages"

enum {
	PAGE = 1 << 16,		/* whole pages, whatever their size */
	SIZE = sizeof(struct xrc_rcv_record),
	MORE = 8,		/* bytes that a longer version of a struct has */
	LIMIT_S = 1800,		/* of each kind of page: a stopped process would never answer */
};

/* Methods of the two objects have the same numbers. */
#define KEY(object, method) ((uint32_t)(object) << 16 | (method))

enum {
	QP_ALLOC = KEY(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC),
	QP_MODIFY = KEY(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY),
	QP_QUERY = KEY(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_QUERY),
	QP_DESTROY = KEY(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_DESTROY),
	QUERY_CAPS = KEY(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS),
	EVENT_CHANNEL_ALLOC = KEY(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC),
	QP_REG = KEY(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG),
	QP_UNREG = KEY(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_UNREG),
	QUERY_DOMAIN = KEY(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN),
};

/* The content of the page: the argument or result with this id; or else the call itself. */
enum {
	THE_CALL = -1,
	/* The call, in a page that can be read and not written: the handle, or which results there
	 * are. userfaultfd only.
	 */
	ITS_RESULTS = -2,
	A_RECORD = -3,
	TWO_RECORDS = -4,	/* of which UNREG discards one */
	AFTER_RECORD = -5,	/* the rest of a longer one */
};

enum which { KEPT, DESTROYED };	/* receive QPs that all use */

struct spot {
	const char *name;
	uint32_t method;
	int place;
	int result;
	unsigned int before;	/* bytes that are in a page that is there */
};

#define SPOT(method, place, result) { #method " " #place, method, place, result, 0 }
#define AT(method, attribute, result) \
	{ #method " " #attribute, method, XRC_RCV_ATTR_##method##_##attribute, result, 0 }
#define AFTER(method, attribute, type, result) \
	{ #method " after " #attribute, method, XRC_RCV_ATTR_##method##_##attribute, result, sizeof(type) }

/* MODIFY and QUERY are of the QP that is destroyed meanwhile. */
static const struct spot spots[] = {
	SPOT(QP_ALLOC, THE_CALL, 0),
	SPOT(QP_ALLOC, ITS_RESULTS, 0),
	AT(QP_ALLOC, ATTR, 0),
	AFTER(QP_ALLOC, ATTR, struct ib_uverbs_qp_attr, 0),
	AT(QP_ALLOC, RESP_QPN, 0),
	SPOT(QP_REG, THE_CALL, 0),
	SPOT(QP_REG, ITS_RESULTS, 0),
	AT(QP_REG, QPNS, 0),
	AT(QP_REG, RESP_DONE, 0),
	SPOT(QP_UNREG, THE_CALL, 0),
	SPOT(QP_UNREG, ITS_RESULTS, 0),
	AT(QP_UNREG, QPNS, 0),
	AT(QP_UNREG, RESP_DONE, 0),
	SPOT(QP_MODIFY, THE_CALL, -EINVAL),
	AT(QP_MODIFY, ATTR, -EINVAL),
	AFTER(QP_MODIFY, ATTR, struct ib_uverbs_qp_attr, -EINVAL),
	SPOT(QP_QUERY, THE_CALL, -EINVAL),
	AT(QP_QUERY, RESP_ATTR, 0),
	AFTER(QP_QUERY, RESP_ATTR, struct ib_uverbs_qp_attr, 0),
	AT(QP_QUERY, RESP_INFO, 0),
	AFTER(QP_QUERY, RESP_INFO, struct xrc_rcv_qp_info, 0),
	SPOT(QP_QUERY, ITS_RESULTS, 0),
	SPOT(QP_DESTROY, THE_CALL, 0),
	SPOT(QUERY_DOMAIN, THE_CALL, 0),
	AT(QUERY_DOMAIN, RESP_INFO, 0),
	AT(QUERY_DOMAIN, RESP_COUNT, 0),
	AT(QUERY_DOMAIN, RESP_TOTAL, 0),
	SPOT(QUERY_DOMAIN, ITS_RESULTS, 0),
	SPOT(QUERY_CAPS, THE_CALL, 0),
	SPOT(QUERY_CAPS, ITS_RESULTS, 0),
	AT(QUERY_CAPS, RESP, 0),
	AFTER(QUERY_CAPS, RESP, struct xrc_rcv_caps, 0),
	SPOT(EVENT_CHANNEL_ALLOC, THE_CALL, 0),
	SPOT(EVENT_CHANNEL_ALLOC, ITS_RESULTS, 0),
	{ "read()", 0, A_RECORD, SIZE, 0 },
	{ "read() of a longer record", 0, AFTER_RECORD, SIZE + MORE, SIZE },
	{ "read() of two records, and UNREG of the first", 0, TWO_RECORDS, SIZE, 0 },
};

enum { SPOTS = ARRAY_SIZE(spots), LOSER = SPOTS - 1, READERS = 3, FIRST_READER = SPOTS - READERS };

static struct actor stopped[SPOTS], other, leaver, newcomer, remover;
static struct member_info *mo, *ml, *mn, *ms;
static uint32_t *numbers;		/* of KEPT and DESTROYED */
static bool from_file;			/* the pages, not from userfaultfd */

/* ---- a process that is stopped ---- */

static const struct spot *spot;
static pthread_t thread;
static int faults, file_number, channel, result;	/* FAULTS is a file if the page is of one */
static uint8_t *page, content[PAGE] __attribute__((aligned(PAGE)));
static uint8_t records[2 * SIZE];
static struct registration last;		/* of whose QP the last record is */

static void *at(uint16_t attribute, void *otherwise)
{
	return spot->place == attribute ? page - spot->before : otherwise;
}

static size_t size_at(uint16_t attribute, size_t size)
{
	return spot->place == attribute && spot->before ? size + MORE : size;
}

/* The input is in the page when that comes; but for what is before the page. */
static void *input_at(uint16_t attribute, const void *data, size_t size, void *otherwise)
{
	uint8_t *input = at(attribute, otherwise);

	memcpy(input == page ? content : input, data, size);
	return input;
}

static void make_call(struct call *call)
{
	static struct xrc_rcv_qp_info infos[4];
	static uint8_t attr[PAGE], info[PAGE], count[8], total[8];
	const struct ib_uverbs_qp_attr reset = {
		.qp_attr_mask = IBV_QP_STATE,
		.qp_state = IBV_QPS_RESET,
	};
	const struct ib_uverbs_qp_attr to_init = attr_to_init(&member.node);
	const uint32_t size = sizeof(infos[0]), force = XRC_RCV_DESTROY_FORCE;
	/* More than the attribute itself has room for. */
	const uint32_t kept[] = { numbers[KEPT], numbers[KEPT], numbers[KEPT] };
	const uint32_t own[] = { member.registration.qp_num, 0, ~0u };

	call_start(call, spot->method >> 16, spot->method & 0xffff);
	switch (spot->method) {
	case QP_ALLOC:
		call_object(call, XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, member.domain.handle);
		call_object(call, XRC_RCV_ATTR_QP_ALLOC_CHANNEL, member.channel);
		call_in(call, XRC_RCV_ATTR_QP_ALLOC_ATTR,
			input_at(XRC_RCV_ATTR_QP_ALLOC_ATTR, &to_init, sizeof(to_init), attr),
			size_at(XRC_RCV_ATTR_QP_ALLOC_ATTR, sizeof(to_init)));
		call_out(call, XRC_RCV_ATTR_QP_ALLOC_RESP_QPN,
			 at(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, count), sizeof(uint32_t));
		break;
	case QP_REG:
		call_object(call, XRC_RCV_ATTR_QP_REG_CHANNEL, member.channel);
		call_in(call, XRC_RCV_ATTR_QP_REG_QPNS,
			input_at(XRC_RCV_ATTR_QP_REG_QPNS, kept, sizeof(kept), info), sizeof(kept));
		call_out(call, XRC_RCV_ATTR_QP_REG_RESP_DONE,
			 at(XRC_RCV_ATTR_QP_REG_RESP_DONE, count), sizeof(uint32_t));
		break;
	case QP_UNREG:
		call_object(call, XRC_RCV_ATTR_QP_UNREG_CHANNEL, member.registration.channel);
		call_in(call, XRC_RCV_ATTR_QP_UNREG_QPNS,
			input_at(XRC_RCV_ATTR_QP_UNREG_QPNS, own, sizeof(own), info), sizeof(own));
		call_out(call, XRC_RCV_ATTR_QP_UNREG_RESP_DONE,
			 at(XRC_RCV_ATTR_QP_UNREG_RESP_DONE, count), sizeof(uint32_t));
		break;
	case QP_MODIFY:
		call_object(call, XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, member.domain.handle);
		call_in(call, XRC_RCV_ATTR_QP_MODIFY_QPN, &numbers[DESTROYED],
			sizeof(numbers[DESTROYED]));
		call_in(call, XRC_RCV_ATTR_QP_MODIFY_ATTR,
			input_at(XRC_RCV_ATTR_QP_MODIFY_ATTR, &reset, sizeof(reset), attr),
			size_at(XRC_RCV_ATTR_QP_MODIFY_ATTR, sizeof(reset)));
		break;
	case QP_QUERY:
		call_object(call, XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, member.domain.handle);
		call_in(call, XRC_RCV_ATTR_QP_QUERY_QPN, &numbers[DESTROYED],
			sizeof(numbers[DESTROYED]));
		call_out(call, XRC_RCV_ATTR_QP_QUERY_RESP_ATTR,
			 at(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, attr),
			 size_at(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, sizeof(struct ib_uverbs_qp_attr)));
		call_out(call, XRC_RCV_ATTR_QP_QUERY_RESP_INFO,
			 at(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, info),
			 size_at(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, size));
		break;
	case QP_DESTROY:
		call_object(call, XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, member.domain.handle);
		call_in(call, XRC_RCV_ATTR_QP_DESTROY_QPN, &member.registration.qp_num,
			sizeof(member.registration.qp_num));
		call_in(call, XRC_RCV_ATTR_QP_DESTROY_FLAGS, &force, sizeof(force));
		break;
	case QUERY_DOMAIN:
		call_object(call, XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, member.domain.handle);
		call_out(call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO,
			 at(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos), sizeof(infos));
		call_out(call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT,
			 at(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, count), sizeof(uint32_t));
		call_out(call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL,
			 at(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, total), sizeof(uint32_t));
		call_in(call, XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, &size, sizeof(size));
		break;
	case QUERY_CAPS:
		call_out(call, XRC_RCV_ATTR_QUERY_CAPS_RESP, at(XRC_RCV_ATTR_QUERY_CAPS_RESP, info),
			 size_at(XRC_RCV_ATTR_QUERY_CAPS_RESP, sizeof(struct xrc_rcv_caps)));
		break;
	case EVENT_CHANNEL_ALLOC:
		call_object(call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD, -1);
		call_object(call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE,
			    member.domain.handle);
		break;
	}
	call->header.length = sizeof(call->header) +
			      call->header.num_attrs * sizeof(call->attributes[0]);
}

static bool reads(const struct spot *which)
{
	return which >= &spots[FIRST_READER];
}

/* QP_GONE of a new QP, and before it that of the other, if there are two. */
static int make_records(void)
{
	const uint32_t size = SIZE + MORE;

	channel = member.channel;
	if (spot->place == AFTER_RECORD)
		channel = rcv_channel_with(member.domain, &size, NULL);
	CHECK(channel >= 0);
	CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channel, &last));
	if (spot->place == TWO_RECORDS)
		CHECK(!rcv_destroy_forced(member.domain, member.registration.qp_num));
	CHECK(!rcv_destroy_forced(member.domain, last.qp_num));
	/* The rest of a record is zero. */
	memset(content, 0xff, sizeof(content));
	return 0;
}

static void *run_call(void *argument)
{
	if (reads(spot))
		result = read(channel, page - spot->before, sizeof(records));
	else
		result = ioctl(member.domain.uverbs_fd, RDMA_VERBS_IOCTL, argument);
	if (result < 0)
		result = -errno;
	return NULL;
}

/* Two pages, of which the first is there. */
static int map_pages(void)
{
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(pages != MAP_FAILED);
	memset(pages, 0, PAGE);
	page = pages + PAGE;
	return 0;
}

/* A page that a file system withholds. */
static int map_file(void)
{
	faults = withheld_open(FILES, &file_number);
	CHECK(faults >= 0);
	CHECK(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, faults, 0) == page);
	return 0;
}

/* A page that is missing, or else one that must not be written. */
static int map_memory(bool is_missing)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = {
		.mode = is_missing ? UFFDIO_REGISTER_MODE_MISSING : UFFDIO_REGISTER_MODE_WP,
	};

	faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	CHECK(faults >= 0);
	CHECK(!ioctl(faults, UFFDIO_API, &api));
	area.range.start = (uintptr_t)page;
	area.range.len = PAGE;
	CHECK(!ioctl(faults, UFFDIO_REGISTER, &area));
	return 0;
}

static int allow_writes(bool allowed)
{
	struct uffdio_writeprotect protect = {
		.range = { .start = (uintptr_t)page, .len = PAGE },
		.mode = allowed ? 0 : UFFDIO_WRITEPROTECT_MODE_WP,
	};

	CHECK(!ioctl(faults, UFFDIO_WRITEPROTECT, &protect));
	return 0;
}

/* Returns when the kernel waits for the page. */
static int stop(void *argument)
{
	static struct call call;
	struct uffd_msg fault;
	void *place = &call;

	spot = argument;
	CHECK(!map_pages());
	CHECK(!(from_file ? map_file() : map_memory(spot->place != ITS_RESULTS)));
	if (reads(spot))
		CHECK(!make_records());
	else
		make_call(&call);
	if (spot->place == THE_CALL || spot->place == ITS_RESULTS) {
		memcpy(spot->place == THE_CALL ? content : page, &call, sizeof(call));
		place = page;
	}
	if (spot->place == ITS_RESULTS)
		CHECK(!allow_writes(false));
	CHECK(!pthread_create(&thread, NULL, run_call, place));
	if (from_file) {
		withheld_wait(file_number);
	} else {
		CHECK(read(faults, &fault, sizeof(fault)) == sizeof(fault));
		CHECK(fault.event == UFFD_EVENT_PAGEFAULT);
	}
	return 0;
}

static int is_stopped(void *argument)
{
	(void)argument;
	CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
	return 0;
}

/* The page comes. */
static int give(void *argument)
{
	struct uffdio_copy copy = {
		.dst = (uintptr_t)page,
		.src = (uintptr_t)content,
		.len = PAGE,
	};

	(void)argument;
	if (from_file)
		CHECK(!withheld_give(file_number, content));
	else if (spot->place == ITS_RESULTS)
		CHECK(!allow_writes(true));
	else
		CHECK(!ioctl(faults, UFFDIO_COPY, &copy));
	return 0;
}

static int ends(void *argument)
{
	(void)argument;
	CHECK(!pthread_join(thread, NULL));
	memcpy(records, page - spot->before, sizeof(records));
	CHECK(!munmap(page - PAGE, 2 * PAGE));
	close(faults);
	return 0;
}

static int ends_as_it_should(void *argument)
{
	static const uint8_t zeros[MORE];

	CHECK(!ends(argument));
	if (result != spot->result)
		warnx("returns %d", result);
	CHECK(result == spot->result);
	if (!reads(spot))
		return 0;
	if (spot->place == AFTER_RECORD)
		CHECK(!memcmp(records + SIZE, zeros, MORE));
	CHECK(is_gone((const void *)records, &last));
	return 0;
}

/* Others follow, of QPs that were destroyed with the device. */
static int reads_after_removal(void *argument)
{
	CHECK(!ends(argument));
	CHECK(result >= spot->result && is_gone((const void *)records, &last));
	return 0;
}

/* Another process ends the registration whose record comes first. */
static int loses_first(void *argument)
{
	int status;
	pid_t child;

	(void)argument;
	child = fork();
	CHECK(child >= 0);
	if (!child)
		_exit(rcv_unreg(&member.registration) ? 1 : 0);
	CHECK(waitpid(child, &status, 0) == child && !status);
	return 0;
}

/* ---- the others ---- */

/* The QPs that all use, with a registration of this process. */
static int make_qps(void *argument)
{
	static struct registration registrations[2];

	(void)argument;
	for (int i = 0; i < 2; i++) {
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, member.channel,
				 &registrations[i]));
		numbers[i] = registrations[i].qp_num;
	}
	member.registration = registrations[DESTROYED];
	return 0;
}

static bool is_used(int i)
{
	return !from_file || spots[i].place != ITS_RESULTS;
}

static unsigned int used(void)
{
	unsigned int number = 0;

	for (int i = 0; i < SPOTS; i++)
		number += is_used(i);
	return number;
}

static int every_call(void *argument)
{
	struct registration registration;
	struct xrc_rcv_record event;
	struct xrc_rcv_qp_info infos[2];
	struct ib_uverbs_qp_attr attr;
	struct xrc_rcv_caps caps;
	uint32_t count = 2, total;
	int channel;

	(void)argument;
	CHECK(!rcv_caps(member.node.context->cmd_fd, &caps));
	channel = rcv_channel(member.domain);
	CHECK(channel >= 0);
	CHECK(!rcv_alloc(member.domain, 0, NULL, channel, &registration));
	CHECK(!rcv_unreg(&registration));
	close(channel);
	CHECK(!rcv_query(member.domain, numbers[DESTROYED], &attr, &infos[0]));
	CHECK(!rcv_to_state(member.domain, numbers[DESTROYED], IBV_QPS_RESET));
	CHECK(!rcv_list(member.domain, 0, infos, &count, &total) && count == 2 && total > used());
	CHECK(!rcv_destroy_forced(member.domain, numbers[DESTROYED]));
	CHECK(read(member.channel, &event, SIZE) == SIZE);
	CHECK(event.type == XRC_RCV_EVENT_QP_GONE && event.qp_num == numbers[DESTROYED]);
	CHECK(!rcv_unreg(&member.registration));
	return 0;
}

static int registers(void *argument)
{
	struct registration registration;

	(void)argument;
	CHECK(!rcv_reg(member.domain, numbers[KEPT], NO_CHANNEL, &registration));
	CHECK(!rcv_unreg(&registration));
	CHECK(!rcv_reg(member.domain, numbers[KEPT], NO_CHANNEL, &registration));
	return 0;
}

/* Until calls are refused: the removal has begun. */
static int waits_for_removal(void *argument)
{
	struct xrc_rcv_caps caps;
	int status;

	(void)argument;
	do {
		status = rcv_caps(member.node.context->cmd_fd, &caps);
		usleep(1000);
	} while (!status);
	CHECK(status == -EIO);
	return 0;
}

static int removes(void *argument)
{
	(void)argument;
	device_remove();
	return 0;
}

/* ---- scenario ---- */

static bool start(struct actor *actor, struct member_info *member_info)
{
	actor_start(actor);
	return DO(*actor, member_join, member_info);
}

static bool all_stop_from(int begin)
{
	bool good = true;

	for (int i = begin; good && i < SPOTS; i++) {
		if (!is_used(i))
			continue;
		good = start(&stopped[i], ms) && DO(stopped[i], member_alloc, ms) &&
		       DO(stopped[i], stop, (void *)&spots[i]);
		if (!good)
			ktap_note("%s: not stopped", spots[i].name);
	}
	return good;
}

static bool all_stop(void)
{
	return start(&other, mo) && DO(other, make_qps, NULL) && start(&leaver, ml) &&
	       DO(leaver, member_alloc, ml) && DO(leaver, registers, NULL) && all_stop_from(0);
}

static bool each_from(int begin, const char *what, act *function)
{
	bool good = true;

	for (int i = begin; i < SPOTS; i++) {
		if (!is_used(i) || succeeded(what, actor_do(&stopped[i], function, NULL)))
			continue;
		ktap_note("%s", spots[i].name);
		good = false;
	}
	return good;
}

static bool each(const char *what, act *function)
{
	return each_from(0, what, function);
}

static void all_exit(void)
{
	for (int i = 0; i < SPOTS; i++)
		actor_exit(&stopped[i]);
	actor_exit(&other);
}

/* The results are the same for both kinds of pages. */
static void result_of(bool good, const char *what)
{
	char text[128];

	snprintf(text, sizeof(text), "%s (%s)", what, from_file ? "FUSE" : "userfaultfd");
	ktap_result(good, text);
}

static void run(void)
{
	struct counts before = count_objects();
	bool good;

	alarm(LIMIT_S);
	result_of(all_stop(), "calls are stopped, each in another copy");
	good = DO(other, every_call, NULL) && DO(stopped[LOSER], loses_first, NULL);
	actor_exit(&leaver);
	good = good && start(&newcomer, mn) && DO(newcomer, registers, NULL);
	actor_exit(&newcomer);
	result_of(good && each("is_stopped", is_stopped),
		  "meanwhile others make every call, exit and begin");
	result_of(each("give", give) && each("ends_as_it_should", ends_as_it_should),
		  "each call ends as it should");
	all_exit();
	result_of(counts_return_to(&before), "no object is left");

	good = all_stop();
	for (int i = 0; i < SPOTS; i++)
		actor_kill(&stopped[i]);
	actor_exit(&leaver);
	actor_exit(&other);
	result_of(good && counts_return_to(&before), "a process that is stopped can be killed");

	good = all_stop();
	actor_begin(&remover, removes, NULL);
	good = good && DO(other, waits_for_removal, NULL);
	actor_exit(&leaver);
	actor_exit(&other);
	result_of(good && each("is_stopped", is_stopped), "while the device is removed others exit");
	result_of(each("give", give) && each("ends", ends), "each call ends");
	result_of(succeeded("removes", actor_wait(&remover)), "and so does the removal");
	all_exit();
	device_add();

	good = all_stop_from(FIRST_READER) && DO(stopped[LOSER], loses_first, NULL);
	device_remove();
	result_of(good && each_from(FIRST_READER, "is_stopped", is_stopped), "the removal does not wait for readers");
	result_of(each_from(FIRST_READER, "give", give) &&
		  each_from(FIRST_READER, "reads_after_removal", reads_after_removal), "their records are not lost");
	for (int i = FIRST_READER; i < SPOTS; i++)
		actor_exit(&stopped[i]);
	device_add();
	result_of(counts_return_to(&before), "nor is an object left");
}

int main(void)
{
	static struct actor server;

	ktap_start("memory whose pages do not come", 2 * 11 + 1);
	numbers = share(2 * sizeof(*numbers));
	mo = member_info_new(DOMAIN_FILE, 0, 64);
	mo->wants_events = true;
	ml = member_info_new(DOMAIN_FILE, 0, 64);
	mn = member_info_new(DOMAIN_FILE, 0, 64);
	ms = member_info_new(DOMAIN_FILE, 0, 64);
	ms->wants_events = true;
	ms->flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN;
	actor_start(&remover);
	run();

	withheld_mount(FILES);
	actor_start(&server);
	actor_begin(&server, withheld_serve, NULL);
	from_file = true;
	run();
	withheld_unmount(FILES);
	ktap_result(succeeded("withheld_serve", actor_wait(&server)), "the file system has served all");
	actor_exit(&server);
	actor_exit(&remover);
	unlink(DOMAIN_FILE);
	return ktap_end();
}
