/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Types and functions of <rdma/ib_verbs.h> and <rdma/ib_user_verbs.h> for the
 * conversions of address vectors in src/helpers.c, with the layouts of
 * ib_verbs.rs. The type of an address says which of its members it has, as in
 * ib_core.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;

/* ports_of_roce has a bit for each of the ports of RoCE. */
struct ib_device {
	int refcount;
	u32 ports_of_roce;
};

struct ib_gid_attr;

struct ib_global_route {
	const struct ib_gid_attr *sgid_attr;
	struct {
		u8 raw[16];
	} dgid;
	u32 flow_label;
	u8 sgid_index;
	u8 hop_limit;
	u8 traffic_class;
};

enum rdma_ah_attr_type { AH_NONE, AH_IB, AH_ROCE };

struct rdma_ah_attr {
	struct ib_global_route grh;
	u8 sl;
	u8 static_rate;
	u32 port_num;
	u8 ah_flags;
	u32 type;
	u16 dlid;
	u8 src_path_bits;
	u8 dmac[6];
};

struct ib_uverbs_global_route {
	u8 dgid[16];
	u32 flow_label;
	u8 sgid_index;
	u8 hop_limit;
	u8 traffic_class;
	u8 reserved;
};

struct ib_uverbs_ah_attr {
	struct ib_uverbs_global_route grh;
	u16 dlid;
	u8 sl;
	u8 src_path_bits;
	u8 static_rate;
	u8 is_global;
	u8 port_num;
	u8 reserved;
};

#define IB_AH_GRH 1

/* Each has an accessor, which the type may make void. */
#define MEMBER(name, member, of_type)						\
static inline void rdma_ah_set_##name(struct rdma_ah_attr *ah, u32 value)	\
{										\
	if (of_type)								\
		ah->member = value;						\
}										\
										\
static inline u32 rdma_ah_get_##name(const struct rdma_ah_attr *ah)		\
{										\
	return of_type ? ah->member : 0;					\
}

MEMBER(dlid, dlid, ah->type == AH_IB)
MEMBER(path_bits, src_path_bits, ah->type == AH_IB)
MEMBER(sl, sl, true)
MEMBER(static_rate, static_rate, true)
MEMBER(port_num, port_num, true)
MEMBER(ah_flags, ah_flags, true)

/* Only Omni-Path has it. */
static inline void rdma_ah_set_make_grd(struct rdma_ah_attr *ah, bool makes)
{
	(void)ah;
	(void)makes;
}

static inline u32 rdma_ah_find_type(const struct ib_device *device, u32 port)
{
	return device->ports_of_roce & (1U << port) ? AH_ROCE : AH_IB;
}

static inline void rdma_ah_set_grh(struct rdma_ah_attr *ah, const void *dgid, u32 flow_label,
				   u8 sgid_index, u8 hop_limit, u8 traffic_class)
{
	ah->ah_flags = IB_AH_GRH;
	if (dgid)
		memcpy(ah->grh.dgid.raw, dgid, sizeof(ah->grh.dgid.raw));
	ah->grh.sgid_attr = NULL;
	ah->grh.flow_label = flow_label;
	ah->grh.sgid_index = sgid_index;
	ah->grh.hop_limit = hop_limit;
	ah->grh.traffic_class = traffic_class;
}

static inline void rdma_ah_set_dgid_raw(struct rdma_ah_attr *ah, const void *dgid)
{
	memcpy(ah->grh.dgid.raw, dgid, sizeof(ah->grh.dgid.raw));
}

static inline const struct ib_global_route *rdma_ah_read_grh(const struct rdma_ah_attr *ah)
{
	return &ah->grh;
}
