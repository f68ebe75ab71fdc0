/* Write a FLAME module in C: include this in one file and export what the host calls (docs/abi.md).
 *
 *   FLAME_EXPORT(flame_init)  uint64_t flame_init(const struct flame_init *init, uint32_t len)
 *   FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch)      required
 *   FLAME_EXPORT(flame_tick)  uint64_t flame_tick(uint64_t now_ns)
 *   FLAME_EXPORT(flame_end)   uint64_t flame_end(uint64_t now_ns)
 *   FLAME_EXPORT(flame_message) uint64_t flame_message(const uint8_t *bytes, uint32_t len)
 *
 * Each returns flame_output(FLAME_DONE), or from flame_tick and flame_end flame_output(FLAME_MORE)
 * when flame_room() got short: they are called again. A module that exports flame_message gets one
 * further instance, whose init->role is FLAME_SLOW, and to which the others send messages. */
#ifndef FLAME_H
#define FLAME_H

#include <stddef.h>
#include <stdint.h>

#define FLAME_ABI 1

enum { FLAME_FAST = 0, FLAME_SLOW = 1 };   /* flame_init.role */
enum { FLAME_DONE = 0, FLAME_MORE = 1 };   /* flame_output */

/* flame_packet.flags */
enum {
  FLAME_IPV4 = 1, FLAME_IPV6 = 2, FLAME_FRAGMENT = 4, FLAME_LATER_FRAGMENT = 8,
  FLAME_TRANSPORT = 16, FLAME_MALFORMED = 32, FLAME_TUNNEL = 64, FLAME_TRUNCATED = 128
};

/* flame_packet.tcp_flags (RFC 9293) */
enum { FLAME_FIN = 1, FLAME_SYN = 2, FLAME_RST = 4, FLAME_PSH = 8, FLAME_ACK = 16 };

/* One packet's descriptor; crates/contract/abi says what each field means. */
struct flame_packet {
  uint64_t ts_ns;
  uint32_t addr, hash, wire_len, cap_len;
  uint16_t l3, l4;
  uint8_t l4_len, proto, flags, tcp_flags;
};

struct flame_batch {
  uint32_t descriptors, count;
  uint64_t lost;
  uint32_t flags;
  uint32_t link; /* LINKTYPE_ number of these packets */
};

struct flame_init {
  uint32_t abi, role, worker, workers;
  uint64_t tick_ns, interval_ns;
};

_Static_assert(sizeof(struct flame_packet) == 32, "descriptor of ABI 1");
_Static_assert(sizeof(struct flame_batch) == 24, "batch header of ABI 1");
_Static_assert(sizeof(struct flame_init) == 32, "init header of ABI 1");

/* An address as a row holds it: family 4 or 6; IPv4 in the first four bytes, the others 0. */
struct flame_ip {
  uint8_t family, bytes[16];
};
_Static_assert(sizeof(struct flame_ip) == 17, "ip column of ABI 1");

#define FLAME_EXPORT(name) __attribute__((export_name(#name)))

__attribute__((import_module("flame"), import_name("packet"))) void flame_begin(uint32_t index);

/* Marks the path from here on as cold. Estimates of time leave cold paths out, bounds include them; costs nothing. */
__attribute__((import_module("flame"), import_name("cold"))) void flame_cold(void);

/* The packets of a batch; call flame_packet(batch, i) for each i in turn: it begins packet i, which
 * then has its own budget of work. */
static inline const struct flame_packet *flame_packet(const struct flame_batch *batch, uint32_t i) {
  flame_begin(i);
  return (const struct flame_packet *)(uintptr_t)batch->descriptors + i;
}

/* All descriptors at once, for work that needs no budget of its own for each packet. */
static inline const struct flame_packet *flame_descriptors(const struct flame_batch *batch) {
  return (const struct flame_packet *)(uintptr_t)batch->descriptors;
}

/* `len` bytes at `offset` of the packet, or NULL if they are not all visible. */
static inline const uint8_t *flame_bytes(const struct flame_packet *p, uint32_t offset, uint32_t len) {
  if (len > p->cap_len || offset > p->cap_len - len) return NULL;
  return (const uint8_t *)(uintptr_t)p->addr + offset;
}

static inline int flame_is_ip(const struct flame_packet *p) { return p->flags & (FLAME_IPV4 | FLAME_IPV6); }

static inline uint16_t flame_be16(const uint8_t *b) { return (uint16_t)(b[0] << 8 | b[1]); }

static inline uint32_t flame_be32(const uint8_t *b) {
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Source (which = 0) or destination (1) address; 0 if it is not visible. */
static inline int flame_address(const struct flame_packet *p, int which, struct flame_ip *ip) {
  int v4 = p->flags & FLAME_IPV4;
  uint32_t size = v4 ? 4 : 16, at = p->l3 + (v4 ? 12u : 8u) + (which ? size : 0);
  const uint8_t *b = flame_is_ip(p) ? flame_bytes(p, at, size) : NULL;
  if (!b) return 0;
  __builtin_memset(ip, 0, sizeof *ip);
  ip->family = v4 ? 4 : 6;
  for (uint32_t i = 0; i < size; i++) ip->bytes[i] = b[i];
  return 1;
}

/* Parameter `name` of module.toml: an integer, or a duration in ns. Traps if there is none. */
static inline int64_t flame_integer(const struct flame_init *init, uint32_t len, const char *name) {
  const uint8_t *p = (const uint8_t *)(init + 1), *end = (const uint8_t *)init + len;
  while (end - p >= 8) {
    uint32_t name_len = p[0] | (uint32_t)p[1] << 8;
    uint32_t size = p[4] | (uint32_t)p[5] << 8 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 24;
    uint32_t i = 0;
    while (i < name_len && name[i] && (uint8_t)name[i] == p[8 + i]) i++;
    if (i == name_len && !name[i] && size == 8) {
      int64_t value;
      __builtin_memcpy(&value, p + 8 + name_len, 8);
      return value;
    }
    p += 8 + name_len + size;
  }
  __builtin_trap();
}

/* Output: rows and messages gather here until the call returns. */
#ifndef FLAME_AREA
#define FLAME_AREA (256 * 1024)
#endif
static uint8_t flame_area[FLAME_AREA];
static uint32_t flame_used, flame_row_start;
static uint64_t flame_lost;
static int flame_full;

/* Bytes of payload that certainly fit still. */
static inline uint32_t flame_room(void) {
  return flame_used + 24 > FLAME_AREA ? 0 : FLAME_AREA - flame_used - 24;
}

static inline void flame_put(const void *bytes, uint32_t len) {
  if (flame_full || len > FLAME_AREA - 16 || flame_used > FLAME_AREA - 16 - len) {
    flame_full = 1;
    return;
  }
  __builtin_memcpy(flame_area + flame_used, bytes, len);
  flame_used += len;
}

static inline void flame_begin_frame(uint16_t kind) {
  uint16_t head[4] = {0, 0, kind, 0};
  flame_row_start = flame_used;
  flame_full = 0;
  flame_put(head, 8);
}

/* Ends a row or message; 0 if it did not fit and was counted as lost. */
static inline int flame_finish(void) {
  if (flame_full) {
    flame_used = flame_row_start;
    flame_lost++;
    return 0;
  }
  uint32_t len = flame_used - flame_row_start - 8;
  __builtin_memcpy(flame_area + flame_row_start, &len, 4);
  return 1;
}

/* A row: flame_row(table), each column in order, flame_finish(). */
static inline void flame_row(uint16_t table) { flame_begin_frame(table); }
static inline void flame_u8(uint8_t v) { flame_put(&v, 1); }
static inline void flame_u16(uint16_t v) { flame_put(&v, 2); }
static inline void flame_u32(uint32_t v) { flame_put(&v, 4); }
static inline void flame_u64(uint64_t v) { flame_put(&v, 8); }
static inline void flame_i64(int64_t v) { flame_put(&v, 8); }
static inline void flame_put_ip(const struct flame_ip *ip) { flame_put(ip, sizeof *ip); }

/* Sends bytes to the slow instance. */
static inline int flame_send(const void *bytes, uint32_t len) {
  flame_begin_frame(0xffff);
  flame_put(bytes, len);
  return flame_finish();
}

/* What a call returns: where its output is. */
static inline uint64_t flame_output(int progress) {
  if (flame_lost && flame_used <= FLAME_AREA - 16) {
    uint16_t head[4] = {8, 0, 0xfffe, 0};
    __builtin_memcpy(flame_area + flame_used, head, 8);
    __builtin_memcpy(flame_area + flame_used + 8, &flame_lost, 8);
    flame_used += 16;
    flame_lost = 0;
  }
  uint64_t more = progress == FLAME_MORE ? UINT64_C(1) << 31 : 0, used = flame_used;
  flame_used = 0;
  return used ? (uint64_t)(uintptr_t)flame_area | used << 32 | more : more;
}

#endif
