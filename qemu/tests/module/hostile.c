// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of hostile programs: every attribute of every method, one thing wrong
 * with it at a time: size, value, pointer, handle, presence; and the header.
 * Each answer is the documented one and leaves nothing behind. The fuzzer
 * (proof/fuzz) makes calls with two things wrong.
 *
 * tags: races stock traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/hostile"
#define OTHER_FILE "/tmp/hostile-other"

enum {
	PAGE = 4096,
	ROOM = 1 << 17,
	FEW = 3,		/* QP numbers, for which a good REG has room */
};

static struct {
	struct file file;		/* a second one of the process */
	struct registration registration;	/* with the QP calls are about */
	struct registration mine;
	int channel, other_channel;
	uint32_t freed;			/* a handle that was an object once */
	uint32_t foreign;		/* that of a domain, but in the second file */
} other;

static uint8_t *room;			/* for any answer, of any length */
static uint8_t *unmapped;
static unsigned int attempts;

/* ---- good calls ---- */

enum kind { INPUT, NUMBERS, OUTPUT, OPEN_OUTPUT, INFOS, NEW, OBJECT, CHANNEL };

struct attribute {
	uint16_t id;
	enum kind kind;
	uint16_t size;		/* the least, for an OPEN_OUTPUT; of an element, for INFOS */
	bool optional;
};

struct method {
	const char *name;
	uint16_t object, id;
	struct attribute attributes[10];
};

#include "errors.h"
#include "methods.h"

enum { METHODS = ARRAY_SIZE(methods) };

static const struct method *method_named(const char *name)
{
	const struct method *method = methods;

	while (strcmp(method->name, name))
		method++;
	return method;
}

/* Whether the contract (spec/src/method.rs) has an error of a method. */
static bool is_documented(const struct method *method, int error)
{
	unsigned int m, e;

	for (m = 0; m < ARRAY_SIZE(documented); m++)
		for (e = 0; !strcmp(documented[m].method, method->name) && documented[m].errors[e]; e++)
			if (documented[m].errors[e] == error)
				return true;
	return false;
}

static unsigned int attribute_count(const struct method *method)
{
	unsigned int count = 0;

	while (method->attributes[count].id)
		count++;
	return count;
}

/* The meaning of an attribute of that size, for all methods: there are few. */
static struct ib_uverbs_qp_attr good_attr;

/* The size of a record, for an attribute that passes one; else 0. */
static uint64_t record_size(const struct method *method, const struct attribute *attribute)
{
	if (method == method_named("QUERY_DOMAIN") &&
	    attribute->id == XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE)
		return sizeof(struct xrc_rcv_qp_info);
	if (method == method_named("REG") && attribute->id == XRC_RCV_ATTR_QP_REG_INFO_SIZE)
		return sizeof(struct xrc_rcv_reg_info);
	if (method == method_named("EVENT_CHANNEL_ALLOC") &&
	    attribute->id == XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE)
		return sizeof(struct xrc_rcv_record);
	return 0;
}

/* Whether an attribute has the bits of events. */
static bool are_events(const struct method *method, const struct attribute *attribute)
{
	return method == method_named("EVENT_CHANNEL_ALLOC") &&
	       attribute->id == XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS;
}

static void build(struct call *call, const struct method *method)
{
	unsigned int i, count = attribute_count(method);

	call_start(call, method->object, method->id);
	for (i = 0; i < count; i++) {
		const struct attribute *attribute = &method->attributes[i];
		uint64_t size_or_zero = record_size(method, attribute);

		switch (attribute->kind) {
		case INPUT:
			if (attribute->size == sizeof(good_attr))
				call_in(call, attribute->id, &good_attr, sizeof(good_attr));
			else if (attribute->size == 4 && !attribute->optional)
				call_in(call, attribute->id, &other.registration.qp_num, 4);
			else
				call_in(call, attribute->id, &size_or_zero, attribute->size);
			break;
		case NUMBERS:
			call_in(call, attribute->id, &other.registration.qp_num, 4);
			break;
		case OUTPUT:
		case OPEN_OUTPUT:
			call_out(call, attribute->id, room + i * PAGE, attribute->size);
			break;
		case INFOS:
			call_out(call, attribute->id, room + i * PAGE, FEW * attribute->size);
			break;
		case NEW:
			call_object(call, attribute->id, -1);
			break;
		case OBJECT:
			call_object(call, attribute->id, member.domain.handle);
			break;
		case CHANNEL:
			call_object(call, attribute->id, other.channel);
			break;
		}
	}
}

/* ---- one thing wrong at a time ---- */

/* One QP of the domain, created by the second file; with UNREG also registered by ours. */
static int prepare(const struct method *method)
{
	int result = rcv_alloc(other.file.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_CHANNEL,
			       &other.registration);

	if (!result && method == method_named("UNREG"))
		result = rcv_reg(member.domain, other.registration.qp_num, other.channel,
				 &other.mine);
	if (!result && method == method_named("DESTROY"))
		result = rcv_unreg(&other.registration);
	return result;
}

static uint32_t qps(void)
{
	uint32_t count = 0, total = ~0u;

	return rcv_list(other.file.domain, 0, NULL, &count, &total) ? ~0u : total;
}

static unsigned int registrations(void)
{
	struct xrc_rcv_qp_info info;

	return rcv_query(other.file.domain, other.registration.qp_num, NULL, &info) ?
	       ~0u : info.registrations;
}

/* Undoes a call that succeeded after all. */
static bool take_back(const struct method *method, struct call *call)
{
	struct registration made = {
		.uverbs_fd = member.domain.uverbs_fd,
		.channel = other.channel,
		.qp_num = other.registration.qp_num,
	};
	unsigned int i;

	if (method == method_named("EVENT_CHANNEL_ALLOC"))
		return !close(call->attributes[0].data);
	for (i = 0; i < call->header.num_attrs; i++)
		if (method == method_named("ALLOC") &&
		    call->attributes[i].attr_id == XRC_RCV_ATTR_QP_ALLOC_RESP_QPN)
			memcpy(&made.qp_num, (void *)(uintptr_t)call->attributes[i].data,
			       sizeof(made.qp_num));
	if (method == method_named("ALLOC") || method == method_named("REG"))
		return !rcv_unreg(&made);
	return true;
}

static bool clean_up(const struct method *method, bool done)
{
	bool right = true;

	if (method == method_named("UNREG"))
		right &= !rcv_unreg(&other.mine);
	if (method != method_named("DESTROY"))
		right &= !rcv_unreg(&other.registration);
	if (method != method_named("DESTROY") || !done)
		right &= !rcv_destroy(other.file.domain, other.registration.qp_num);
	/* Of a channel that could be read, QP_GONE is left. */
	while (read(other.channel, room, PAGE) > 0)
		;
	return right && !qps();
}

__attribute__((format(printf, 4, 5)))
static bool answers(const struct method *method, struct call *call, int expected,
		    const char *format, ...)
{
	unsigned int before_qps = qps(), before_registrations = registrations();
	bool right = true;
	char what[128];
	va_list args;
	int result;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	attempts++;
	if (!call->header.length)
		call->header.length = sizeof(call->header) +
				      call->header.num_attrs * sizeof(call->attributes[0]);
	result = ioctl(member.domain.uverbs_fd, RDMA_VERBS_IOCTL, &call->header) ? -errno : 0;
	if (result != expected) {
		warnx("%s, %s: %s, not %s", method->name, what, strerror(-result),
		      strerror(-expected));
		right = false;
	}
	if (result && !is_documented(method, -result)) {
		warnx("%s, %s: %s is not documented", method->name, what, strerror(-result));
		right = false;
	}
	if (result && (qps() != before_qps || registrations() != before_registrations)) {
		warnx("%s, %s: left something behind", method->name, what);
		right = false;
	}
	if (!result && !take_back(method, call)) {
		warnx("%s, %s: cannot be taken back", method->name, what);
		right = false;
	}
	if (!clean_up(method, !result)) {
		warnx("%s, %s: %u QPs left", method->name, what, qps());
		right = false;
	}
	return right;
}

/* A fresh good call, of which the caller spoils one thing. */
static struct ib_uverbs_attr *spoil(const struct method *method, struct call *call,
				    unsigned int i)
{
	if (prepare(method))
		errx(1, "%s: cannot be prepared", method->name);
	build(call, method);
	return &call->attributes[i];
}

static bool spoiled_presence(const struct method *method, unsigned int i)
{
	const struct attribute *attribute = &method->attributes[i];
	struct ib_uverbs_attr *attr;
	struct call call;
	bool right;

	attr = spoil(method, &call, i);
	memmove(attr, attr + 1, (char *)(call.attributes + call.header.num_attrs) -
				(char *)(attr + 1));
	call.header.num_attrs--;
	/* Of lifetime REGISTRATIONS, ALLOC wants a channel. */
	right = answers(method, &call, attribute->optional && attribute->kind != CHANNEL ?
			0 : -WRONG_MISSING, "without attribute %u", i);

	attr = spoil(method, &call, i);
	call.attributes[call.header.num_attrs++] = *attr;
	right &= answers(method, &call, -WRONG_TWICE, "attribute %u twice", i);

	attr = spoil(method, &call, i);
	attr->attr_data.reserved = 1;
	right &= answers(method, &call, -WRONG_RESERVED, "attribute %u, reserved bits", i);

	/* An unknown attribute has to be refused if it is mandatory only. */
	spoil(method, &call, i);
	call_add(&call, 0x1fff, 0, 0);
	right &= answers(method, &call, -WRONG_UNKNOWN, "an unknown attribute");
	spoil(method, &call, i);
	call_add(&call, 0x1fff, 0, 0)->flags = 0;
	right &= answers(method, &call, 0, "an unknown attribute that is not mandatory");
	return right;
}

/* Padding in struct ib_uverbs_qp_attr, whatever its mask has. */
static const size_t paddings[] = {
	offsetof(struct ib_uverbs_qp_attr, reserved[0]),
	offsetof(struct ib_uverbs_qp_attr, reserved[4]),
	offsetof(struct ib_uverbs_qp_attr, ah_attr.reserved),
	offsetof(struct ib_uverbs_qp_attr, ah_attr.grh.reserved),
	offsetof(struct ib_uverbs_qp_attr, alt_ah_attr.reserved),
	offsetof(struct ib_uverbs_qp_attr, alt_ah_attr.grh.reserved),
};

/* Flags are of 32 bits, or of 64. */
static bool are_flags(const struct method *method, const struct attribute *attribute)
{
	return (attribute->id == XRC_RCV_ATTR_QP_ALLOC_FLAGS && method == method_named("ALLOC")) ||
	       (attribute->id == XRC_RCV_ATTR_QP_DESTROY_FLAGS &&
		method == method_named("DESTROY")) ||
	       (attribute->id == XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS &&
		method == method_named("EVENT_CHANNEL_ALLOC"));
}

static bool spoiled_input(const struct method *method, unsigned int i)
{
	const struct attribute *attribute = &method->attributes[i];
	/* Room for a struct, in the middle of zeroes. */
	uint8_t *copy = room + ROOM - PAGE;
	struct ib_uverbs_attr *attr;
	bool flags = are_flags(method, attribute), right = true;
	unsigned int padding;
	struct call call;

	attr = spoil(method, &call, i);
	attr->len = 0;
	right &= answers(method, &call, -WRONG_SHORT, "attribute %u, no bytes", i);
	attr = spoil(method, &call, i);
	attr->len--;
	right &= answers(method, &call, -WRONG_SHORT, "attribute %u, a byte short", i);

	if (attribute->size <= 8) {
		if (attribute->size == 8) {
			memset(copy, 0, 16);
			attr = spoil(method, &call, i);
			attr->len = 16;
			attr->data = (uintptr_t)copy;
			right &= answers(method, &call, -WRONG_LONG, "attribute %u, 16 bytes", i);
		} else {
			attr = spoil(method, &call, i);
			attr->len = 8;
			right &= answers(method, &call, flags ? 0 : -WRONG_LONG,
					 "attribute %u, 8 bytes", i);
		}
		attr = spoil(method, &call, i);
		attr->len = 0xffff;
		attr->data = (uintptr_t)room;
		right &= answers(method, &call, -WRONG_LONG, "attribute %u, 64 KiB", i);
		if (flags) {
			attr = spoil(method, &call, i);
			attr->data = 0xffffffff;
			right &= answers(method, &call, -WRONG_BITS, "all flags");
		}
		if (attribute->size == 8) {
			attr = spoil(method, &call, i);
			attr->data = ~0ull;
			right &= answers(method, &call,
					 are_events(method, attribute) ? -WRONG_BITS : 0,
					 "attribute %u, all ones", i);
		}
		return right;
	}

	/* A struct grows: zeroes after the known part are the same struct. */
	memset(copy, 0, PAGE);
	memcpy(copy, &good_attr, sizeof(good_attr));
	attr = spoil(method, &call, i);
	attr->len += 8;
	attr->data = (uintptr_t)copy;
	right &= answers(method, &call, 0, "attribute %u, longer, zero", i);
	copy[attribute->size + 7] = 1;
	attr = spoil(method, &call, i);
	attr->len += 8;
	attr->data = (uintptr_t)copy;
	right &= answers(method, &call, -WRONG_NOT_ZERO, "attribute %u, longer, not zero", i);
	attr = spoil(method, &call, i);
	attr->data = 0;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u at 0", i);
	attr = spoil(method, &call, i);
	attr->data = (uintptr_t)unmapped;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u, unmapped", i);
	attr = spoil(method, &call, i);
	attr->data = (uintptr_t)unmapped - attribute->size + 1;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u, its end unmapped", i);
	attr = spoil(method, &call, i);
	attr->data = 0xffff888000000000;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u in the kernel", i);
	attr = spoil(method, &call, i);
	attr->data = ~0ull;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u at the end of all", i);

	/* Misaligned is no fault. */
	memcpy(copy + 1, &good_attr, sizeof(good_attr));
	attr = spoil(method, &call, i);
	attr->data = (uintptr_t)copy + 1;
	right &= answers(method, &call, 0, "attribute %u, misaligned", i);

	/* The struct itself: all ones, all of the mask, padding. */
	memset(copy, 0xff, sizeof(good_attr));
	attr = spoil(method, &call, i);
	attr->data = (uintptr_t)copy;
	right &= answers(method, &call, -WRONG_PADDING, "attribute %u, all ones", i);
	memcpy(copy, &good_attr, sizeof(good_attr));
	((struct ib_uverbs_qp_attr *)copy)->qp_attr_mask = ~0u;
	attr = spoil(method, &call, i);
	attr->data = (uintptr_t)copy;
	right &= answers(method, &call, -WRONG_BITS, "attribute %u, an all-ones mask", i);
	for (padding = 0; padding < ARRAY_SIZE(paddings); padding++) {
		memcpy(copy, &good_attr, sizeof(good_attr));
		copy[paddings[padding]] = 1;
		attr = spoil(method, &call, i);
		attr->data = (uintptr_t)copy;
		right &= answers(method, &call, -WRONG_PADDING, "attribute %u, padding at %zu", i,
				 paddings[padding]);
	}
	return right;
}

/* An array of QP numbers: in the attribute, or behind a pointer. */
static bool spoiled_numbers(const struct method *method, unsigned int i)
{
	uint32_t *copy = (uint32_t *)(room + ROOM - PAGE), length;
	struct ib_uverbs_attr *attr;
	bool right = true;
	struct call call;

	for (length = 0; length < 8; length++) {
		if (length == 4)
			continue;
		attr = spoil(method, &call, i);
		attr->len = length;
		right &= answers(method, &call, length < 4 ? -WRONG_SHORT : -WRONG_ELEMENTS,
				 "attribute %u, %u bytes", i, length);
	}
	attr = spoil(method, &call, i);
	attr->data = 0xffffffff;
	right &= answers(method, &call, method == method_named("REG") ? -UNKNOWN_NUMBER : 0,
			 "the greatest number");
	attr = spoil(method, &call, i);
	attr->len = 8;
	attr->data |= attr->data << 32;
	right &= answers(method, &call, 0, "a number twice");

	for (length = 12; length < 16; length++) {
		attr = spoil(method, &call, i);
		copy[0] = copy[1] = copy[2] = copy[3] = attr->data;
		attr->len = length;
		attr->data = (uintptr_t)copy;
		right &= answers(method, &call, length % 4 ? -WRONG_ELEMENTS : 0,
				 "attribute %u, %u bytes", i, length);
	}
	attr = spoil(method, &call, i);
	attr->len = 12;
	attr->data = (uintptr_t)unmapped;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u, unmapped", i);
	attr = spoil(method, &call, i);
	attr->len = 12;
	attr->data = (uintptr_t)unmapped - 11;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u, its end unmapped", i);
	memset(room, 0, ROOM);
	attr = spoil(method, &call, i);
	attr->len = 0xfffc;
	attr->data = (uintptr_t)room;
	right &= answers(method, &call, method == method_named("REG") ? -UNKNOWN_NUMBER : 0,
			 "as many numbers as there can be, none of a QP");
	return right;
}

static bool spoiled_output(const struct method *method, unsigned int i)
{
	const struct attribute *attribute = &method->attributes[i];
	bool open = attribute->kind == OPEN_OUTPUT;
	/* An array whose length says how many fit: no element is an answer too. */
	bool array = method == method_named("QUERY_DOMAIN") && open;
	struct ib_uverbs_attr *attr;
	bool right = true;
	struct call call;

	attr = spoil(method, &call, i);
	attr->len = 0;
	if (!open)
		right &= answers(method, &call, -WRONG_SHORT, "attribute %u, no bytes", i);
	else
		clean_up(method, false);
	if (!open) {
		attr = spoil(method, &call, i);
		attr->len--;
		right &= answers(method, &call, -WRONG_SHORT, "attribute %u, a byte short", i);
	} else if (!array) {
		/* As much as both know: half of it, or zeroes after it. */
		attr = spoil(method, &call, i);
		attr->len /= 2;
		memset(room + i * PAGE, 0xee, PAGE);
		right &= answers(method, &call, 0, "attribute %u, half", i);
		if (room[i * PAGE + attr->len] != 0xee) {
			warnx("%s: attribute %u: written beyond its end", method->name, i);
			right = false;
		}
		attr = spoil(method, &call, i);
		attr->len += 16;
		memset(room + i * PAGE, 0xee, PAGE);
		right &= answers(method, &call, 0, "attribute %u, longer", i);
		if (room[i * PAGE + attribute->size] || room[i * PAGE + attr->len] != 0xee) {
			warnx("%s: attribute %u: not zero after its end", method->name, i);
			right = false;
		}
	}
	attr = spoil(method, &call, i);
	attr->data = 0;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u at 0", i);
	attr = spoil(method, &call, i);
	attr->data = (uintptr_t)unmapped;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u, unmapped", i);
	attr = spoil(method, &call, i);
	attr->data = (uintptr_t)unmapped - 1;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u, its end unmapped", i);
	attr = spoil(method, &call, i);
	attr->data = 0xffff888000000000;
	right &= answers(method, &call, -WRONG_POINTER, "attribute %u in the kernel", i);
	attr = spoil(method, &call, i);
	attr->data++;
	right &= answers(method, &call, 0, "attribute %u, misaligned", i);
	return right;
}

/* REG registers, and cannot write the information of the QP: the registration stays. */
static bool stays(const struct method *method, struct call *call, const char *what)
{
	unsigned int before = registrations();
	uint32_t done = 0;
	bool right;
	int result;

	attempts++;
	memset(room + 2 * PAGE, 0xee, sizeof(done));
	result = call_run(call, member.domain.uverbs_fd);
	memcpy(&done, room + 2 * PAGE, sizeof(done));
	right = result == -WRONG_POINTER && done == 1 && registrations() == before + 1;
	if (!right)
		warnx("REG, its array %s: %s, %u done", what, strerror(-result), done);
	return take_back(method, call) & clean_up(method, true) && right;
}

/* An array that has to have an element for each QP number, and gets no byte more. */
static bool spoiled_infos(const struct method *method, unsigned int i)
{
	const uint16_t size = method->attributes[i].size;
	uint8_t *infos = room + i * PAGE;
	bool right = true;
	struct call call;

	spoil(method, &call, i)->len = 0;
	right &= answers(method, &call, -WRONG_SHORT, "an array of no bytes");
	spoil(method, &call, i)->len = size - 1;
	right &= answers(method, &call, -WRONG_SHORT, "an array that is a byte short");
	memset(infos, 0xee, PAGE);
	spoil(method, &call, i);
	right &= answers(method, &call, 0, "an array of more elements");
	if (infos[size - 1] || infos[size] != 0xee) {
		warnx("REG: one element is not what was written");
		right = false;
	}
	spoil(method, &call, i)->data++;
	right &= answers(method, &call, 0, "an array that is misaligned");
	spoil(method, &call, i)->data = 0;
	right &= stays(method, &call, "at 0");
	spoil(method, &call, i)->data = (uintptr_t)unmapped;
	right &= stays(method, &call, "unmapped");
	spoil(method, &call, i)->data = (uintptr_t)unmapped - size + 1;
	right &= stays(method, &call, "not mapped to its end");
	spoil(method, &call, i)->data = 0xffff888000000000;
	right &= stays(method, &call, "in the kernel");
	return right;
}

static bool spoiled_object(const struct method *method, unsigned int i)
{
	struct ib_uverbs_attr *attr;
	bool right = true;
	struct call call;
	struct {
		int64_t value;
		int error;
		const char *what;
	} wrong[] = {
		{ -1, -WRONG_NO_HANDLE, "-1" },
		{ INT64_MIN, -WRONG_NO_HANDLE, "the least" },
		{ INT64_MAX, -WRONG_HANDLE, "the greatest" },
		{ 0x7fffffff, -WRONG_HANDLE, "of no object" },
		{ 0x100000000, -WRONG_HANDLE, "more than 32 bits" },
		{ other.freed, -WRONG_HANDLE, "freed" },
		{ other.foreign, -WRONG_HANDLE, "another file's" },
		/* Handles of one file count all its objects: these are others. */
		{ member.node.pd->handle, -WRONG_OBJECT, "a protection domain" },
	};
	unsigned int w;

	for (w = 0; w < ARRAY_SIZE(wrong); w++) {
		attr = spoil(method, &call, i);
		attr->data = wrong[w].value;
		right &= answers(method, &call, wrong[w].error, "object %u is %s", i,
				 wrong[w].what);
	}
	attr = spoil(method, &call, i);
	attr->len = 8;
	right &= answers(method, &call, -WRONG_LONG, "object %u with a length", i);
	return right;
}

static bool spoiled_channel(const struct method *method, unsigned int i)
{
	struct ib_uverbs_attr *attr;
	bool right = true;
	struct call call;
	struct {
		int64_t value;
		int error;
		const char *what;
	} wrong[] = {
		{ -1, -WRONG_CHANNEL, "-1" },
		{ 0, -WRONG_CHANNEL, "standard input" },
		{ 9999, -WRONG_CHANNEL, "not open" },
		{ 0x100000000, -WRONG_DESCRIPTOR, "more than 32 bits" },
		{ member.node.context->cmd_fd, -WRONG_CHANNEL, "the uverbs file" },
		{ other.other_channel, -WRONG_CHANNEL, "another file's" },
	};
	unsigned int w;

	for (w = 0; w < ARRAY_SIZE(wrong); w++) {
		attr = spoil(method, &call, i);
		attr->data = wrong[w].value;
		right &= answers(method, &call, wrong[w].error, "channel is %s", wrong[w].what);
	}
	attr = spoil(method, &call, i);
	attr->len = 8;
	right &= answers(method, &call, -WRONG_LONG, "channel with a length");
	return right;
}

/* The attribute for the new descriptor cannot be written. */
static bool spoiled_new(const struct method *method)
{
	/* Pages may be larger than those of PAGE bytes that calls have parts in. */
	const size_t page = getpagesize();
	struct call *read_only = (struct call *)(room + ROOM - page), call;
	unsigned int before;
	bool right = true;
	int result;

	spoil(method, &call, 0);
	call.attributes[0].len = 4;
	right &= answers(method, &call, -WRONG_LONG, "a length for the new descriptor");

	spoil(method, &call, 0);
	call.header.length = sizeof(call.header) +
			     call.header.num_attrs * sizeof(call.attributes[0]);
	*read_only = call;
	before = qps();
	attempts++;
	if (mprotect(read_only, page, PROT_READ))
		err(1, "mprotect");
	result = ioctl(member.domain.uverbs_fd, RDMA_VERBS_IOCTL, read_only) ? -errno : 0;
	if (mprotect(read_only, page, PROT_READ | PROT_WRITE))
		err(1, "mprotect");
	if (result != -WRONG_POINTER || qps() != before) {
		warnx("%s, a call that cannot be written to: %s", method->name,
		      strerror(-result));
		right = false;
	}
	return clean_up(method, false) && right;
}

static bool spoiled_header(const struct method *method)
{
	struct call call;
	bool right = true;

	spoil(method, &call, 0);
	call.header.driver_id ^= 1;
	right &= answers(method, &call, -WRONG_DRIVER, "another driver");
	spoil(method, &call, 0);
	call.header.driver_id = ~0u;
	right &= answers(method, &call, -WRONG_DRIVER, "a driver that is none");
	spoil(method, &call, 0);
	call.header.method_id |= 7 | 0x800;
	right &= answers(method, &call, -WRONG_METHOD, "another method");
	spoil(method, &call, 0);
	call.header.method_id &= 0xfff;
	right &= answers(method, &call, -WRONG_METHOD, "a method of the core's namespace");
	spoil(method, &call, 0);
	call.header.object_id = 0xffff;
	right &= answers(method, &call, -WRONG_METHOD, "another object");
	spoil(method, &call, 0);
	call.header.reserved1 = 1;
	right &= answers(method, &call, -WRONG_HEADER_RESERVED, "reserved1");
	spoil(method, &call, 0);
	call.header.reserved2 = 1;
	right &= answers(method, &call, -WRONG_HEADER_RESERVED, "reserved2");
	spoil(method, &call, 0);
	call.header.length = 8;
	right &= answers(method, &call, -WRONG_LENGTH, "a length that is too short");
	spoil(method, &call, 0);
	call.header.length = 0xffff;
	right &= answers(method, &call, -WRONG_LENGTH, "a length that is too long");
	spoil(method, &call, 0);
	call.header.num_attrs = 0xffff;
	call.header.length = sizeof(call.header) + 16 * sizeof(call.attributes[0]);
	right &= answers(method, &call, -WRONG_LENGTH, "a number of attributes that does not fit");
	return right;
}

static int one_thing_wrong(void *argument)
{
	const struct method *method = &methods[*(unsigned int *)argument];
	bool right = spoiled_header(method);
	unsigned int i;
	struct call call;

	attempts = 0;
	/* A good call succeeds: else all below would be about something else. */
	spoil(method, &call, 0);
	right &= answers(method, &call, 0, "nothing wrong");
	for (i = 0; method->attributes[i].id; i++) {
		right &= spoiled_presence(method, i);
		switch (method->attributes[i].kind) {
		case INPUT:
			right &= spoiled_input(method, i);
			break;
		case NUMBERS:
			right &= spoiled_numbers(method, i);
			break;
		case OUTPUT:
		case OPEN_OUTPUT:
			right &= spoiled_output(method, i);
			break;
		case INFOS:
			right &= spoiled_infos(method, i);
			break;
		case OBJECT:
			right &= spoiled_object(method, i);
			break;
		case CHANNEL:
			right &= spoiled_channel(method, i);
			break;
		case NEW:
			right &= spoiled_new(method);
			break;
		}
	}
	*(unsigned int *)argument = attempts;
	return right ? 0 : -EBADMSG;
}

static int get_ready(void *argument)
{
	struct member_info *member_info = argument;
	struct ibv_pd *pds[3];
	unsigned int i;

	room = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (room == MAP_FAILED)
		return -errno;
	unmapped = room + ROOM;
	CHECK(!munmap(unmapped, PAGE));

	file_open(&other.file, member_info->domain_file);
	other.channel = rcv_channel(member.domain);
	other.other_channel = rcv_channel(other.file.domain);
	CHECK(other.channel >= 0 && other.other_channel >= 0);
	CHECK(!fcntl(other.channel, F_SETFL, O_NONBLOCK));
	good_attr = attr_to_init(&member.node);

	/* The lowest that is free is given out first, and no call needs two: the third stays free.
	 */
	for (i = 0; i < ARRAY_SIZE(pds); i++) {
		pds[i] = ibv_alloc_pd(member.node.context);
		CHECK(pds[i]);
	}
	other.freed = pds[ARRAY_SIZE(pds) - 1]->handle;
	for (i = 0; i < ARRAY_SIZE(pds); i++)
		CHECK(!ibv_dealloc_pd(pds[i]));
	/* So many that ours has none of that number. */
	do
		other.foreign = domain_of(node_open_domain(&other.file.node, OTHER_FILE)).handle;
	while (other.foreign <= other.freed);
	return 0;
}

/* ---- ---- */

int main(void)
{
	struct member_info *member_info;
	struct counts before;
	struct actor actor;
	unsigned int *index, i;
	char text[96];

	ktap_start("hostile calls", METHODS + 1);
	before = count_objects();
	member_info = member_info_new(DOMAIN_FILE, 0, 0);
	index = share(sizeof(*index));
	actor_start(&actor);
	if (!(DO(actor, member_join, member_info) && DO(actor, get_ready, member_info)))
		errx(1, "the actor is not ready");
	for (i = 0; i < METHODS; i++) {
		bool right;

		*index = i;
		right = DO(actor, one_thing_wrong, index);
		snprintf(text, sizeof(text), "%s with one thing wrong is refused", methods[i].name);
		ktap_note("%u calls", *index);
		ktap_result(right, text);
	}
	actor_exit(&actor);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	unlink(OTHER_FILE);
	return ktap_end();
}
