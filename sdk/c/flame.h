/* A FLAME module in C includes this header in one file and exports the functions that the host calls
 * (docs/abi.md):
 *
 *   FLAME_EXPORT(flame_init)  uint64_t flame_init(const struct flame_init *init, uint32_t len)
 *   FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch)      required
 *   FLAME_EXPORT(flame_push)  uint64_t flame_push(uint32_t port, const struct flame_batch *batch)
 *                                   instead of flame_batch, for a module that forwards packets ([ports])
 *   FLAME_EXPORT(flame_tick)  uint64_t flame_tick(uint64_t now_ns)
 *   FLAME_EXPORT(flame_end)   uint64_t flame_end(uint64_t now_ns)
 *   FLAME_EXPORT(flame_message) uint64_t flame_message(const uint8_t *bytes, uint32_t len)
 *   FLAME_EXPORT(flame_export) uint64_t flame_export(void)
 *   FLAME_EXPORT(flame_import) uint64_t flame_import(const uint8_t *state, uint32_t len)
 *                                   of a module that keeps state ([state]): FLAME_STATE, FLAME_TAKEN
 *   FLAME_EXPORT(flame_pressure) uint64_t flame_pressure(uint64_t free)
 *                                   of a module that makes do with less memory: it can grow by `free` bytes
 *                                   only, or was refused more (flame_try_take)
 *
 * Each returns flame_output(FLAME_DONE). A call may write any number of rows: they wait in the instance's
 * memory until it returns. To take less memory, flame_tick and flame_end return flame_output(FLAME_MORE) when
 * flame_room() becomes short, and are called again. A module that exports flame_message gets one additional
 * instance, whose init->role is FLAME_SLOW, and to which the others send messages. */
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
enum {
  FLAME_FIN = 1, FLAME_SYN = 2, FLAME_RST = 4, FLAME_PSH = 8, FLAME_ACK = 16, FLAME_URG = 32, FLAME_ECE = 64,
  FLAME_CWR = 128
};

/* flame_packet.proto (IANA) */
enum {
  FLAME_ICMP = 1, FLAME_IGMP = 2, FLAME_TCP = 6, FLAME_UDP = 17, FLAME_GRE = 47, FLAME_ESP = 50,
  FLAME_AH = 51, FLAME_ICMPV6 = 58, FLAME_OSPF = 89, FLAME_SCTP = 132
};

/* The descriptor of one packet; crates/contract/abi documents each field. */
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
  uint32_t link; /* the LINKTYPE_ number of these packets */
};

struct flame_init {
  uint32_t abi, role, worker, workers;
  uint64_t tick_ns, interval_ns;
  uint64_t seed; /* of random numbers; 0 unless module.toml has random = true in [needs] */
};

_Static_assert(sizeof(struct flame_packet) == 32, "descriptor of ABI 1");
_Static_assert(sizeof(struct flame_batch) == 24, "batch header of ABI 1");
_Static_assert(sizeof(struct flame_init) == 40, "init header of ABI 1");

/* An address as rows contain it: family 4 or 6; IPv4 in the first four bytes, the others 0. */
struct flame_ip {
  uint8_t family, bytes[16];
};
_Static_assert(sizeof(struct flame_ip) == 17, "ip column of ABI 1");

#define FLAME_EXPORT(name) __attribute__((export_name(#name)))

__attribute__((import_module("flame"), import_name("packet"))) void flame_begin(uint32_t index);

/* Marks the path from here on as cold. Estimates of time leave cold paths out, bounds include them. The call
 * costs nothing. */
__attribute__((import_module("flame"), import_name("cold"))) void flame_cold(void);

/* Returns packet i of a batch and begins its own budget of work; call it for each i in order. */
static inline const struct flame_packet *flame_packet(const struct flame_batch *batch, uint32_t i) {
  flame_begin(i);
  return (const struct flame_packet *)(uintptr_t)batch->descriptors + i;
}

/* Returns all descriptors at once, for work that needs no budget per packet. */
static inline const struct flame_packet *flame_descriptors(const struct flame_batch *batch) {
  return (const struct flame_packet *)(uintptr_t)batch->descriptors;
}

/* Returns `len` bytes at `offset` of the packet, or NULL if they are not all visible. */
static inline const uint8_t *flame_bytes(const struct flame_packet *p, uint32_t offset, uint32_t len) {
  if (len > p->cap_len || offset > p->cap_len - len) return NULL;
  return (const uint8_t *)(uintptr_t)p->addr + offset;
}

static inline int flame_is_ip(const struct flame_packet *p) { return p->flags & (FLAME_IPV4 | FLAME_IPV6); }

static inline uint16_t flame_be16(const uint8_t *b) { return (uint16_t)(b[0] << 8 | b[1]); }

static inline uint32_t flame_be32(const uint8_t *b) {
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Stores the source (which = 0) or destination (1) address; returns 0 if it is not visible. */
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

/* Returns the number of the `len` bytes from `offset` on that are visible. */
static inline uint32_t flame_visible(const struct flame_packet *p, uint32_t offset, uint32_t len) {
  if (offset >= p->cap_len) return 0;
  return len < p->cap_len - offset ? len : p->cap_len - offset;
}

/* Returns the source (which = 0) or destination (1) port of TCP, UDP or SCTP; -1 if it is not visible. */
static inline int32_t flame_port(const struct flame_packet *p, int which) {
  if (!flame_is_ip(p) || p->flags & FLAME_LATER_FRAGMENT) return -1;
  if (p->proto != FLAME_TCP && p->proto != FLAME_UDP && p->proto != FLAME_SCTP) return -1;
  const uint8_t *b = flame_bytes(p, p->l4 + (which ? 2u : 0u), 2);
  return b ? flame_be16(b) : -1;
}

static inline int32_t flame_sport(const struct flame_packet *p) { return flame_port(p, 0); }
static inline int32_t flame_dport(const struct flame_packet *p) { return flame_port(p, 1); }

/* Headers with their fields in the host's byte order. Each function returns 0, and stores nothing, unless the
 * packet has this header and the header's fixed part is visible. */

struct flame_ipv4 {
  uint8_t header_len, dscp, ecn, ttl, proto, dont_fragment, more_fragments;
  uint16_t total_len, id, fragment_offset /* in bytes */, checksum;
  uint32_t src, dst;
};

static inline int flame_ipv4(const struct flame_packet *p, struct flame_ipv4 *h) {
  const uint8_t *b = p->flags & FLAME_IPV4 ? flame_bytes(p, p->l3, 20) : NULL;
  if (!b) return 0;
  *h = (struct flame_ipv4){
      .header_len = (uint8_t)((b[0] & 15) * 4), .dscp = b[1] >> 2, .ecn = b[1] & 3, .ttl = b[8],
      .proto = b[9], .dont_fragment = b[6] >> 6 & 1, .more_fragments = b[6] >> 5 & 1,
      .total_len = flame_be16(b + 2), .id = flame_be16(b + 4),
      .fragment_offset = (uint16_t)((flame_be16(b + 6) & 0x1fff) * 8),
      .checksum = flame_be16(b + 10), .src = flame_be32(b + 12), .dst = flame_be32(b + 16)};
  return 1;
}

struct flame_ipv6 {
  uint8_t dscp, ecn, next_header, hop_limit;
  uint16_t payload_len;
  uint32_t flow_label;
  const uint8_t *src, *dst; /* 16 bytes each */
};

static inline int flame_ipv6(const struct flame_packet *p, struct flame_ipv6 *h) {
  const uint8_t *b = p->flags & FLAME_IPV6 ? flame_bytes(p, p->l3, 40) : NULL;
  if (!b) return 0;
  uint32_t first = flame_be32(b);
  *h = (struct flame_ipv6){
      .dscp = first >> 22 & 63, .ecn = first >> 20 & 3, .flow_label = first & 0xfffff,
      .payload_len = flame_be16(b + 4), .next_header = b[6], .hop_limit = b[7], .src = b + 8, .dst = b + 24};
  return 1;
}

struct flame_tcp {
  uint16_t sport, dport, window, checksum, urgent;
  uint32_t seq, ack;
  uint8_t header_len, flags;
};

static inline int flame_tcp(const struct flame_packet *p, struct flame_tcp *h) {
  int is = p->proto == FLAME_TCP && flame_is_ip(p) && !(p->flags & FLAME_LATER_FRAGMENT);
  const uint8_t *b = is ? flame_bytes(p, p->l4, 20) : NULL;
  if (!b) return 0;
  *h = (struct flame_tcp){
      .sport = flame_be16(b), .dport = flame_be16(b + 2), .seq = flame_be32(b + 4), .ack = flame_be32(b + 8),
      .header_len = (uint8_t)((b[12] >> 4) * 4), .flags = b[13], .window = flame_be16(b + 14),
      .checksum = flame_be16(b + 16), .urgent = flame_be16(b + 18)};
  return 1;
}

struct flame_udp {
  uint16_t sport, dport, len, checksum;
};

static inline int flame_udp(const struct flame_packet *p, struct flame_udp *h) {
  int is = p->proto == FLAME_UDP && flame_is_ip(p) && !(p->flags & FLAME_LATER_FRAGMENT);
  const uint8_t *b = is ? flame_bytes(p, p->l4, 8) : NULL;
  if (!b) return 0;
  *h = (struct flame_udp){flame_be16(b), flame_be16(b + 2), flame_be16(b + 4), flame_be16(b + 6)};
  return 1;
}

/* Returns the visible bytes after the transport header, up to the end of the datagram. Padding by the link is
 * not payload. */
static inline const uint8_t *flame_payload(const struct flame_packet *p, uint32_t *len) {
  *len = 0;
  if (!(p->flags & FLAME_TRANSPORT)) return NULL;
  uint32_t at = (uint32_t)p->l4 + p->l4_len, end = UINT32_MAX, stated = 0;
  const uint8_t *ip = flame_bytes(p, p->l3, 6);
  const uint8_t *udp = p->proto == FLAME_UDP ? flame_bytes(p, p->l4, 6) : NULL;
  if (ip && p->flags & FLAME_IPV4) {
    stated = flame_be16(ip + 2);
  } else if (ip) {
    stated = flame_be16(ip + 4);
    if (stated) stated += 40;
  }
  /* Segmentation offload omits the length. */
  if (stated) end = p->l3 + stated;
  if (udp && flame_be16(udp + 4) >= 8 && p->l4 + (uint32_t)flame_be16(udp + 4) < end)
    end = p->l4 + flame_be16(udp + 4);
  if (end <= at) return NULL;
  *len = flame_visible(p, at, end - at);
  return *len ? flame_bytes(p, at, *len) : NULL;
}

/* Compilers call memcmp, and there is no libc; memcpy and memset are instructions. */
__attribute__((weak, no_builtin("memcmp"))) int memcmp(const void *a, const void *b, size_t n) {
  const uint8_t *x = a, *y = b;
  for (size_t i = 0; i < n; i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

/* Returns the value of parameter `name` and stores its length. Traps if there is none. */
static inline const uint8_t *flame_parameter(const struct flame_init *init, uint32_t len, const char *name,
                                             uint32_t *size) {
  const uint8_t *p = (const uint8_t *)(init + 1), *end = (const uint8_t *)init + len;
  while (end - p >= 8) {
    uint32_t name_len = p[0] | (uint32_t)p[1] << 8, i = 0;
    *size = p[4] | (uint32_t)p[5] << 8 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 24;
    while (i < name_len && name[i] && (uint8_t)name[i] == p[8 + i]) i++;
    if (i == name_len && !name[i]) return p + 8 + name_len;
    p += 8 + name_len + *size;
  }
  __builtin_trap();
}

/* Returns parameter `name` of module.toml: an integer, a boolean (0 or 1) or a duration in ns. */
static inline int64_t flame_integer(const struct flame_init *init, uint32_t len, const char *name) {
  uint32_t size;
  const uint8_t *p = flame_parameter(init, len, name, &size);
  int64_t value;
  if (size != 8) __builtin_trap();
  __builtin_memcpy(&value, p, 8);
  return value;
}

/* Returns a parameter of type number. */
static inline double flame_number(const struct flame_init *init, uint32_t len, const char *name) {
  int64_t bits = flame_integer(init, len, name);
  double value;
  __builtin_memcpy(&value, &bits, 8);
  return value;
}

/* Returns a text of `*size` bytes without a terminating 0. It is valid until flame_init returns. */
static inline const char *flame_text(const struct flame_init *init, uint32_t len, const char *name,
                                     uint32_t *size) {
  const uint8_t *p = flame_parameter(init, len, name, size);
  uint32_t place[2];
  uint32_t name_len = 0;
  while (name[name_len]) name_len++;
  /* A large text, which has `max` in module.toml, lies elsewhere: the value is its address and length. */
  if (p[-6 - (int32_t)name_len] != 1) return (const char *)p;
  __builtin_memcpy(place, p, 8);
  *size = place[1];
  return (const char *)place[0];
}

/* A module with [state] in module.toml exports flame_export, which returns FLAME_STATE(address, length): its
 * state, at most `max` bytes, which stay as they are until the next call. It is called at the end, and on a
 * node after some ticks. flame_import is called once, after flame_init, with a state that an instance of the
 * same version exported; it may be damaged. It returns FLAME_TAKEN, or FLAME_REFUSED if it has changed
 * nothing and begins empty. An instance whose state another one takes over is not ended (flame_end). */
#define FLAME_STATE(at, len) ((uint64_t)(uintptr_t)(at) | (uint64_t)(len) << 32)
enum { FLAME_TAKEN = 0, FLAME_REFUSED = 1 }; /* flame_import */

/* Random numbers that follow from a seed: init->seed, which each instance has for itself. They are not for
 * secrets. The algorithm is SplitMix64 (Steele, Lea and Flood: Fast Splittable Pseudorandom Number
 * Generators, OOPSLA 2014).
 *
 *   static struct flame_random random;
 *   random.state = init->seed;                               in flame_init
 *   if (flame_below(&random, 100) == 0) …                    one of 100 */
struct flame_random {
  uint64_t state;
};

static inline uint64_t flame_next(struct flame_random *r) {
  uint64_t n = r->state += UINT64_C(0x9e3779b97f4a7c15);
  n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
  return n ^ n >> 31;
}

/* Returns a number below n. Its cost is constant; some numbers are more likely by n in 2^32. */
static inline uint32_t flame_below(struct flame_random *r, uint32_t n) {
  return (uint32_t)((flame_next(r) >> 32) * n >> 32);
}

/* Requests `size` bytes of new memory, all 0, which cannot be freed. Returns NULL if the instance may not
 * have so much more. */
static inline void *flame_try_take(uint64_t size) {
  if (size > UINT64_C(1) << 30) return NULL;
  size_t pages = __builtin_wasm_memory_grow(0, (size_t)((size + 65535) / 65536));
  return pages == (size_t)-1 ? NULL : (void *)(pages * 65536);
}

/* Returns `size` bytes of new memory, all 0. It cannot be freed, so call this in flame_init. Without so much
 * memory the instance ends. */
static inline void *flame_take(uint64_t size) {
  void *memory = flame_try_take(size);
  if (!memory) __builtin_trap();
  return memory;
}

/* Returns the address of the n-th area of [[shared]] in module.toml: as many bytes as it states, which other
 * modules may change at any time, so copy a value before checking it. A write to an area with access = "read"
 * traps, and so does every memcpy or memset into an area: assign. */
static inline volatile uint8_t *flame_shared(uint32_t n) {
  return (volatile uint8_t *)(uintptr_t)(0xf8400000u + n * (24u << 20));
}

static inline uint64_t flame_since(uint64_t now, uint64_t then) { return now > then ? now - then : 0; }

/* The longest that times may go back by. Those further ahead are of a wrong clock. */
#define FLAME_BACK 60000000000u
/* The same to choose the entry that gives way: only a free place precedes one of a wrong clock. */
static inline uint64_t flame_age(uint64_t now, uint64_t used) {
  return used > now && used - now > FLAME_BACK ? UINT64_MAX - 1 : flame_since(now, used);
}

/* A timer in packet time, for the times of packets and ticks. Time that goes back by up to a minute is
 * ignored; if it goes back further, a wrong time stamp had moved the timer ahead, and it begins again.
 *
 *   static struct flame_timer timer = FLAME_EVERY(1000000000);  at multiples of a second since 1970
 *   static struct flame_timer idle = FLAME_AFTER(1000000000);   once, a second after a first poll or restart
 *   uint64_t at;
 *   if (flame_poll(&timer, p->ts_ns, &at)) …                    `at` is the latest time that was due
 *
 * FLAME_EVERY is due at the same times on every worker. flame_poll returns the number of times that were due
 * since the last poll, and has a constant cost. */
struct flame_timer {
  uint64_t ns;
  uint64_t due; /* 0: not begun; UINT64_MAX: never */
  int periodic;
};
#define FLAME_EVERY(nanoseconds) {(nanoseconds), 0, 1}
#define FLAME_AFTER(nanoseconds) {(nanoseconds), 0, 0}

/* Begins again at `now`. */
static inline void flame_restart(struct flame_timer *t, uint64_t now) {
  uint64_t ns = t->ns ? t->ns : 1, from = t->periodic ? now - now % ns : now;
  t->due = from > UINT64_MAX - ns ? UINT64_MAX : from + ns;
}

static inline uint64_t flame_poll(struct flame_timer *t, uint64_t now, uint64_t *at) {
  if (t->due == 0) {
    flame_restart(t, now);
    return 0;
  }
  uint64_t due = t->due, ns = t->ns ? t->ns : 1;
  if (now < due || due == UINT64_MAX) {
    uint64_t began = due < ns ? 0 : due - ns, back = began > now ? began - now : 0;
    if (back > FLAME_BACK && (t->periodic || due != UINT64_MAX)) flame_restart(t, now);
    return 0;
  }
  flame_cold();
  uint64_t more = t->periodic ? (now - due) / ns : 0;
  *at = due + more * ns;
  t->due = t->periodic && *at <= UINT64_MAX - ns ? *at + ns : UINT64_MAX;
  return more + 1;
}

/* FLAME_FLOWS(flows, struct flow, last_ns) defines `struct flows`, a table of fixed size with state of flows,
 * found by the packets' flow hash. Sets have eight entries, in which a new entry replaces the least recently
 * used one, and at most four of one hash. last_ns is the entry's field with the time of its last use. An
 * entry expires `timeout` ns after it; .evicted counts entries that were replaced earlier. The cost of each
 * call does not depend on the contents of the table.
 *
 *   static struct flows table;
 *   flows_init(&table, capacity, timeout);                   in flame_init
 *   struct flow *f;
 *   FLAME_FLOWS_EACH(&table, p->hash, now_ns, last_ns, f)    every entry under this hash
 *     if (f->sport == sport) break;
 *   if (!f) f = flows_insert(&table, p->hash, now_ns);       a new entry, with the contents of an old one
 *   flows_remove(&table, f); */
#define FLAME_WAYS 8
#define FLAME_SAME 4 /* entries in a set that have one tag: no more are compared */
#define FLAME_FLOWS(name, type, used)                                                                        \
  struct name {                                                                                              \
    uint32_t (*tags)[FLAME_WAYS]; /* 0 marks a free place */                                                 \
    type (*entries)[FLAME_WAYS];                                                                             \
    uint32_t shift;                                                                                          \
    uint64_t timeout, evicted;                                                                               \
  };                                                                                                         \
  __attribute__((unused)) static inline void name##_init(struct name *t, uint64_t capacity,                  \
                                                         uint64_t timeout) {                                 \
    uint32_t bits = 1;                                                                                       \
    while (bits < 24 && ((uint64_t)FLAME_WAYS << bits) < capacity) bits++;                                   \
    t->shift = 32 - bits;                                                                                    \
    t->timeout = timeout;                                                                                    \
    t->tags = (uint32_t (*)[FLAME_WAYS])flame_take((uint64_t)sizeof *t->tags << bits);                       \
    t->entries = (type (*)[FLAME_WAYS])flame_take((uint64_t)sizeof *t->entries << bits);                     \
  }                                                                                                          \
  __attribute__((unused)) static inline type *name##_insert(struct name *t, uint32_t hash, uint64_t now) {   \
    flame_cold(); /* once per flow */                                                                        \
    uint32_t set = flame_set(t->shift, hash), *tags = t->tags[set];                                          \
    uint32_t same = flame_with_tag(tags, hash | 1), free = flame_with_tag(tags, 0);                          \
    uint32_t among = (1u << FLAME_WAYS) - 1;                                                                 \
    if (__builtin_popcount(same) >= FLAME_SAME) {                                                            \
      among = same;                                                                                          \
    } else if (free) {                                                                                       \
      among = free & -free; /* the first one */                                                              \
    }                                                                                                        \
    uint32_t chosen = (uint32_t)__builtin_ctz(among) % FLAME_WAYS;                                           \
    type *entries = t->entries[set];                                                                         \
    for (uint32_t way = 0; way < FLAME_WAYS; way++)                                                          \
      if (among >> way & 1 && flame_age(now, entries[way].used) > flame_age(now, entries[chosen].used))      \
        chosen = way;                                                                                        \
    if (tags[chosen] != 0 && flame_since(now, entries[chosen].used) <= t->timeout) t->evicted++;             \
    tags[chosen] = hash | 1;                                                                                 \
    return &entries[chosen];                                                                                 \
  }                                                                                                          \
  __attribute__((unused)) static inline void name##_remove(struct name *t, const type *entry) {              \
    uint32_t at = (uint32_t)(entry - &t->entries[0][0]);                                                     \
    t->tags[at / FLAME_WAYS][at % FLAME_WAYS] = 0;                                                           \
  }

/* Returns the set of a hash, which is multiplied because the low bits may have chosen the worker. */
static inline uint32_t flame_set(uint32_t shift, uint32_t hash) { return hash * 0x9e3779b1u >> shift; }

/* Returns a bit for each way that has this tag. */
static inline uint32_t flame_with_tag(const uint32_t tags[FLAME_WAYS], uint32_t tag) {
  typedef int32_t four __attribute__((vector_size(16)));
  four low, high, same = (four){0} + (int32_t)tag;
  __builtin_memcpy(&low, tags, 16);
  __builtin_memcpy(&high, tags + 4, 16);
  int ways = __builtin_wasm_bitmask_i32x4(low == same) | __builtin_wasm_bitmask_i32x4(high == same) << 4;
  return (uint32_t)ways;
}

/* Runs the statement after it with `e` at each entry under `hash` that has not expired. Those that have are
 * removed: if the time went back, they would be found beside others of the same flow. After a `break`, `e` is
 * the current entry; after the whole loop it is NULL. */
#define FLAME_FLOWS_EACH(t, hash, now, used_field, e)                                                        \
  for (uint32_t flame_in = flame_set((t)->shift, (hash)), flame_try = 0,                                     \
                flame_same = flame_with_tag((t)->tags[flame_in], (hash) | 1);                                \
       ((e) = NULL, flame_try < FLAME_SAME && flame_same); flame_try++, flame_same &= flame_same - 1)        \
    if (((e) = &(t)->entries[flame_in][__builtin_ctz(flame_same)],                                           \
         flame_since((now), (e)->used_field) <= (t)->timeout ||                                              \
             ((t)->tags[flame_in][__builtin_ctz(flame_same)] = 0, 0)))

/* FLAME_MAP(ports, struct key, uint64_t, 12) defines a map with 4 << 12 places:
 * `uint64_t *ports_find(const struct key *)` returns the value of a key, or NULL if there is none;
 * `uint64_t *ports_insert(const struct key *, uint64_t now_ns)` returns the value of a key, initially 0. If
 * all four places of a key are taken, the least recently inserted one is evicted, which ports_evicted counts:
 * it is not found any more.
 * All bytes of a key are compared, so set the padding between its fields too. */
#define FLAME_MAP(name, key_type, value_type, bits)                                                          \
  static struct name##_place {                                                                               \
    key_type key;                                                                                            \
    uint64_t used; /* time of the last insert plus 1; 0 if free */                                           \
    value_type value;                                                                                        \
  } name##_places[1u << (bits)][4];                                                                          \
  __attribute__((unused)) static uint64_t name##_evicted;                                                    \
  __attribute__((unused)) static inline value_type *name##_find(const key_type *key) {                       \
    struct name##_place *set = name##_places[flame_hash(key, sizeof *key) & ((1u << (bits)) - 1)];           \
    for (int way = 0; way < 4; way++)                                                                        \
      if (set[way].used && !__builtin_memcmp(&set[way].key, key, sizeof *key)) return &set[way].value;       \
    return NULL;                                                                                             \
  }                                                                                                          \
  __attribute__((unused)) static inline value_type *name##_insert(const key_type *key, uint64_t now_ns) {    \
    struct name##_place *set = name##_places[flame_hash(key, sizeof *key) & ((1u << (bits)) - 1)];           \
    struct name##_place *chosen = set;                                                                       \
    uint64_t used = now_ns + (now_ns < UINT64_MAX), age = 0;                                                 \
    for (int way = 0; way < 4; way++) {                                                                      \
      if (set[way].used && !__builtin_memcmp(&set[way].key, key, sizeof *key)) {                             \
        set[way].used = used;                                                                                \
        return &set[way].value;                                                                              \
      }                                                                                                      \
      uint64_t of = set[way].used ? flame_age(used, set[way].used) : UINT64_MAX;                             \
      if (of > age) age = of, chosen = &set[way];                                                            \
    }                                                                                                        \
    name##_evicted += chosen->used != 0;                                                                     \
    *chosen = (struct name##_place){.key = *key, .used = used};                                              \
    return &chosen->value;                                                                                   \
  }

/* Returns a hash of bytes (FNV-1a, with both halves combined). */
static inline uint32_t flame_hash(const void *bytes, uint32_t len) {
  const uint8_t *b = (const uint8_t *)bytes;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < len; i++) h = (h ^ b[i]) * UINT64_C(0x100000001b3);
  return (uint32_t)(h ^ h >> 32);
}

/* The output area: rows and messages collect here until the call returns. When it is full, the next one
 * begins; the host takes them one after the other by flame_rest(), which is below. */
#ifndef FLAME_AREA
#define FLAME_AREA (1024 * 1024) /* the first area, at least 128 KiB and at most 17 MiB */
#endif
_Static_assert(FLAME_AREA >= 128 * 1024 && FLAME_AREA <= 17 * 1024 * 1024, "FLAME_AREA: 128 KiB to 17 MiB");
#define FLAME_FURTHER (512 * 1024) /* each further area */
#define FLAME_AREAS 1024           /* of which so many may wait for the host */
#define FLAME_LONGEST 65536        /* a row or message */
struct flame_area {
  uint8_t *at;
  uint32_t size, used;
};
static uint8_t flame_first[FLAME_AREA];
/* Area flame_current is being written. Those before it are full, those after it left from earlier calls. */
static struct flame_area flame_areas[FLAME_AREAS];
static uint32_t flame_current, flame_given;
static uint8_t *flame_at = flame_first;
static uint32_t flame_size = FLAME_AREA, flame_used, flame_row_start, flame_messages;
static uint64_t flame_lost;
static uint16_t flame_kind, flame_lost_of; /* the table of lost rows and 1, or 0 if they are of several */
static int flame_full;

/* Returns the number of payload bytes that fit into the current area. */
static inline uint32_t flame_room(void) {
  return flame_used + 24 > flame_size ? 0 : flame_size - flame_used - 24;
}

/* Begins the next area, unless there is no memory for it. */
static inline void flame_next_area(void) {
  flame_cold();
  if (flame_current >= FLAME_AREAS - 1) return;
  struct flame_area *next = &flame_areas[flame_current + 1];
  if (!next->at) {
    size_t pages = __builtin_wasm_memory_grow(0, FLAME_FURTHER / 65536);
    if (pages == (size_t)-1) return;
    next->at = (uint8_t *)(pages * 65536);
    next->size = FLAME_FURTHER;
  }
  flame_areas[flame_current++] = (struct flame_area){flame_at, flame_size, flame_used};
  flame_at = next->at;
  flame_size = next->size;
  flame_used = flame_messages = 0;
}

static inline void flame_put(const void *bytes, uint32_t len) {
  if (flame_full || len > FLAME_LONGEST || flame_used > flame_size - 16 - len) {
    flame_full = 1;
    return;
  }
  __builtin_memcpy(flame_at + flame_used, bytes, len);
  flame_used += len;
}

static inline void flame_begin_here(uint16_t kind) {
  uint16_t head[4] = {0, 0, kind, 0};
  flame_kind = kind;
  flame_row_start = flame_used;
  flame_full = 0;
  flame_put(head, 8);
}

static inline void flame_begin_frame(uint16_t kind) {
  /* Its size is not known yet, so there must be room for the longest. */
  if (flame_room() < FLAME_LONGEST) flame_next_area();
  flame_begin_here(kind);
}

/* Ends a row or message; returns 0 if it is longer than 65,536 bytes or there is no memory left for it. It is
 * then counted as lost. */
static inline int flame_finish(void) {
  uint32_t len = flame_used - flame_row_start - 8;
  if (flame_full || len > FLAME_LONGEST) {
    uint16_t of = flame_kind < 0xfff5 ? flame_kind + 1 : 0;
    flame_lost_of = flame_lost && flame_lost_of != of ? 0 : of;
    flame_used = flame_row_start;
    flame_lost++;
    return 0;
  }
  __builtin_memcpy(flame_at + flame_row_start, &len, 4);
  return 1;
}

/* To write a row: flame_row(table), each column in order, flame_finish(). */
static inline void flame_row(uint16_t table) { flame_begin_frame(table); }

/* Makes room for rows, which flame_reserved_row(table) begins: `bytes` is the sum of their columns and 8 for
 * each, at most 120,000. Such a row begins no area, so the bound of a packet that writes several contains
 * that cost once, or not at all if the room is made for a batch. A row without room is counted as lost. Call
 * it between rows: one that was begun must be finished first, or the host ends the module. */
static inline void flame_reserve(uint32_t bytes) {
  /* The next area may be smaller than one of which nothing is used. */
  if (flame_room() < bytes && flame_used > 0) flame_next_area();
}
static inline void flame_reserved_row(uint16_t table) { flame_begin_here(table); }

static inline void flame_u8(uint8_t v) { flame_put(&v, 1); }
static inline void flame_u16(uint16_t v) { flame_put(&v, 2); }
static inline void flame_u32(uint32_t v) { flame_put(&v, 4); }
static inline void flame_u64(uint64_t v) { flame_put(&v, 8); }
static inline void flame_i64(int64_t v) { flame_put(&v, 8); }
static inline void flame_f64(double v) { flame_put(&v, 8); }
static inline void flame_bool(int v) { flame_u8(v != 0); }
static inline void flame_mac(const uint8_t mac[6]) { flame_put(mac, 6); }
static inline void flame_put_ip(const struct flame_ip *ip) { flame_put(ip, sizeof *ip); }

/* Writes a text of at most 65,535 bytes of UTF-8; a longer one is truncated. */
static inline void flame_put_text(const char *text, uint32_t len) {
  if (len > 65535) {
    len = 65535;
    /* Do not cut within a character. */
    for (int i = 0; i < 3 && ((uint8_t)text[len] & 0xc0) == 0x80; i++) len--;
  }
  flame_u16((uint16_t)len);
  flame_put(text, len);
}

/* Sends a text of UTF-8 to the operator: `flame run` prints it on standard error after the module's name.
 * module.toml needs `log = true`, and under a grant the text needs the right `log`. At most 512 bytes are
 * taken. The host delivers 32 texts a second of packet time, drops the others and counts them. */
static inline void flame_log(const char *text, uint32_t len) {
  if (len > 512) {
    len = 512;
    /* Do not cut within a character. */
    for (int i = 0; i < 3 && ((uint8_t)text[len] & 0xc0) == 0x80; i++) len--;
  }
  flame_begin_frame(0xfffc);
  flame_put(text, len);
  flame_finish();
}

/* Sends bytes to the slow instance; the host takes at most 4,096 messages from one area. */
static inline int flame_send(const void *bytes, uint32_t len) {
  if (flame_messages == 4096) flame_next_area();
  flame_begin_frame(0xffff);
  flame_put(bytes, len);
  if (flame_messages == 4096) flame_full = 1;
  flame_messages += !flame_full;
  return flame_finish();
}

static inline int flame_send_frame(uint16_t index, uint32_t port, const void *bytes, uint32_t len) {
  flame_begin_frame(0xfffb);
  flame_u16(index);
  /* An output that no manifest has stays one, and the host refuses it; so does an index below. */
  flame_u16((uint16_t)(port < 0xffff ? port : 0xffff));
  flame_put(bytes, len);
  return flame_finish();
}

/* In flame_push: sends packet `index` with other bytes; module.toml needs `modify = true` in [ports]. They
 * are as many as the module sees of the packet, and the rest of the packet follows them; with expose = "all",
 * they are the whole packet and of any length. */
static inline int flame_forward_bytes(uint32_t index, uint32_t port, const void *bytes, uint32_t len) {
  return flame_send_frame((uint16_t)(index < 0xfffe ? index : 0xfffe), port, bytes, len);
}

/* In flame_push: sends packet `index` of the batch from the output `port`, as it came. A packet that is not
 * sent is dropped. */
static inline int flame_forward(uint32_t index, uint32_t port) {
  return flame_forward_bytes(index, port, 0, 0);
}

/* In flame_push: sends a new packet; module.toml needs `transmit = true` in [ports]. */
static inline int flame_make(uint32_t port, const void *bytes, uint32_t len) {
  return flame_send_frame(0xffff, port, bytes, len);
}

static inline int flame_held(uint16_t kind, uint32_t first, uint32_t second) {
  flame_begin_frame(kind);
  /* A number that no manifest has stays one, and the host refuses it. */
  flame_u16((uint16_t)(first < 0xffff ? first : 0xffff));
  flame_u16((uint16_t)(second < 0xffff ? second : 0xffff));
  return flame_finish();
}

/* In flame_push: holds packet `index` of the batch, as it came, in `slot`, which is below `held` in [ports]
 * of module.toml. Under a grant it needs the right `hold`. A packet that was in the slot is dropped. Each
 * packet is sent or held once. */
static inline int flame_hold(uint32_t index, uint32_t slot) { return flame_held(0xfff7, index, slot); }

/* In flame_push: sends the packet in `slot` from the output `port`, and empties the slot. An empty slot sends
 * nothing. */
static inline int flame_release(uint32_t slot, uint32_t port) { return flame_held(0xfff6, slot, port); }

/* In flame_push: sends a copy of the packet in `slot`; module.toml needs `transmit = true` in [ports]. */
static inline int flame_copy(uint32_t slot, uint32_t port) { return flame_held(0xfff5, slot, port); }

/* Sends a link-layer frame on a channel, by the number of its entry in [[channels]] of module.toml, which
 * under a grant needs the right `send`: a whole Ethernet frame of 14 to 9,216 bytes with its checksums,
 * without the check sequence at its end. Returns 0, and counts the frame as lost, if it is of another length
 * or there is no memory for it. It leaves after the call has returned; the host drops and counts what the
 * filters do not let out and what exceeds the channel's rate and queue. */
static inline int flame_send_on(uint16_t channel, const void *frame, uint32_t len) {
  flame_begin_frame(0xfffa);
  if (len < 14 || len > 9216) flame_full = 1;
  flame_u16(channel);
  flame_u16(0);
  if (!flame_full) flame_put(frame, len);
  return flame_finish();
}

/* The longest request and the longest reply of a service in bytes. */
enum { FLAME_MAX_REQUEST = 4096 };

static inline int flame_finish_request(const void *bytes, uint32_t len) {
  if (len > FLAME_MAX_REQUEST) flame_full = 1;
  if (!flame_full) flame_put(bytes, len);
  return flame_finish();
}

/* Calls a service, by the number of its entry in [[uses]] of module.toml, which under a grant needs the right
 * `call`, with at most 4,096 bytes. The outcome is a call of flame_done in the slow instance, with `token`.
 * Returns 0, and counts the call as lost, if it is longer or there is no memory for it; then there is no
 * outcome. At most 256 calls of a module wait for their outcome; further ones are not let out. */
static inline int flame_call(uint16_t service, uint64_t token, const void *request, uint32_t len) {
  flame_begin_frame(0xfff9);
  flame_u16(service);
  flame_u16(0);
  flame_u32(0);
  flame_u64(token);
  return flame_finish_request(request, len);
}

/* Replies to a call of a service, which under a grant needs the right `serve`, with at most 4,096 bytes: in
 * the call in which it came or in a later one of the slow instance. A second reply and a late one are
 * dropped. Returns 0, and counts the reply as lost, if it is longer or there is no memory for it. */
static inline int flame_reply(uint64_t call, const void *reply, uint32_t len) {
  flame_begin_frame(0xfff8);
  flame_u64(call);
  return flame_finish_request(reply, len);
}

/* A call of a service of this module. The bytes are any that the caller chose. */
struct flame_request {
  uint64_t call;    /* for flame_reply */
  uint16_t service; /* the number in [[services]] of module.toml */
  const uint8_t *bytes;
  uint32_t len;
};

/* Reads the data of flame_serve(data, len). */
static inline struct flame_request flame_request(const uint8_t *data, uint32_t len) {
  struct flame_request request = {0, 0, data + 16, len - 16};
  __builtin_memcpy(&request.call, data, 8);
  __builtin_memcpy(&request.service, data + 8, 2);
  return request;
}

/* Why a call of a service has an outcome: it replied; nobody offers it; its module ended; it was too slow;
 * the caller had no processor time left. */
enum { FLAME_REPLIED, FLAME_NOBODY, FLAME_ENDED, FLAME_LATE, FLAME_NO_TIME };

/* The outcome of a call of a service. The bytes are any that the service chose. */
struct flame_outcome {
  uint64_t token;
  uint16_t outcome;
  uint32_t lost; /* calls that were not let out since the outcome before */
  const uint8_t *bytes;
  uint32_t len;
};

/* Reads the data of flame_done(data, len). */
static inline struct flame_outcome flame_outcome(const uint8_t *data, uint32_t len) {
  struct flame_outcome outcome = {0, 0, 0, data + 16, len - 16};
  __builtin_memcpy(&outcome.token, data, 8);
  __builtin_memcpy(&outcome.outcome, data + 8, 2);
  __builtin_memcpy(&outcome.lost, data + 12, 4);
  return outcome;
}

/* Returns the address and length of the next area of output, and whether another one follows. */
static inline uint64_t flame_hand(void) {
  if (flame_given < flame_current && flame_given < FLAME_AREAS) {
    const struct flame_area *area = &flame_areas[flame_given++];
    return (uint64_t)(uintptr_t)area->at | (uint64_t)area->used << 32 | UINT64_C(1) << 30;
  }
  if (flame_lost && flame_used <= flame_size - 16) {
    uint16_t head[4] = {8, 0, 0xfffe, flame_lost_of};
    __builtin_memcpy(flame_at + flame_used, head, 8);
    __builtin_memcpy(flame_at + flame_used + 8, &flame_lost, 8);
    flame_used += 16;
    flame_lost = 0;
  }
  uint64_t output = flame_used ? (uint64_t)(uintptr_t)flame_at | (uint64_t)flame_used << 32 : 0;
  flame_current = flame_given = flame_used = flame_messages = 0;
  flame_at = flame_first;
  flame_size = FLAME_AREA;
  return output;
}

/* Returns the result of a call: its output and whether to call again. */
static inline uint64_t flame_output(int progress) {
  return flame_hand() | (progress == FLAME_MORE ? UINT64_C(1) << 31 : 0);
}

/* The host calls this for the rest of a call's output. */
FLAME_EXPORT(flame_rest) uint64_t flame_rest(void) { return flame_hand(); }

#endif
