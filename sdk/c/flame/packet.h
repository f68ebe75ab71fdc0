/* A part of flame.h: packets and their headers. */

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

/* flame_packet.proto (IANA). FLAME_IPV6 is a flag; the protocol is FLAME_PROTO_IPV6. */
enum {
  FLAME_ICMP = 1, FLAME_IGMP = 2, FLAME_PROTO_IPIP = 4, FLAME_TCP = 6, FLAME_UDP = 17, FLAME_PROTO_IPV6 = 41,
  FLAME_GRE = 47, FLAME_ESP = 50, FLAME_AH = 51, FLAME_ICMPV6 = 58, FLAME_OSPF = 89, FLAME_SCTP = 132
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
  uint32_t queue, reserved;
};

struct flame_init {
  uint32_t abi, role, worker, workers;
  uint64_t tick_ns, interval_ns;
  uint64_t seed; /* of random numbers; 0 unless module.toml has random = true in [needs] */
};

_Static_assert(sizeof(struct flame_packet) == 32, "descriptor of ABI 1");
_Static_assert(sizeof(struct flame_batch) == 32, "batch header of ABI 1");
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

/* Returns the number of the event queue of these packets, in the order of module.toml, or 0. */
static inline uint32_t flame_queue(const struct flame_batch *batch) { return batch->queue; }

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
  /* Copies of constant sizes, which have a bound. */
  if (v4)
    __builtin_memcpy(ip->bytes, b, 4);
  else
    __builtin_memcpy(ip->bytes, b, 16);
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
  uint8_t version, header_len, dscp, ecn, ttl, proto, reserved, dont_fragment, more_fragments;
  uint16_t total_len, id, fragment_offset /* in bytes */, checksum;
  uint32_t src, dst;
};

static inline int flame_ipv4(const struct flame_packet *p, struct flame_ipv4 *h) {
  const uint8_t *b = p->flags & FLAME_IPV4 ? flame_bytes(p, p->l3, 20) : NULL;
  if (!b) return 0;
  *h = (struct flame_ipv4){
      .version = b[0] >> 4, .header_len = (uint8_t)((b[0] & 15) * 4), .dscp = b[1] >> 2, .ecn = b[1] & 3,
      .ttl = b[8], .proto = b[9], .reserved = b[6] >> 7, .dont_fragment = b[6] >> 6 & 1,
      .more_fragments = b[6] >> 5 & 1,
      .total_len = flame_be16(b + 2), .id = flame_be16(b + 4),
      .fragment_offset = (uint16_t)((flame_be16(b + 6) & 0x1fff) * 8),
      .checksum = flame_be16(b + 10), .src = flame_be32(b + 12), .dst = flame_be32(b + 16)};
  return 1;
}

struct flame_ipv6 {
  uint8_t version, dscp, ecn, next_header, hop_limit;
  uint16_t payload_len;
  uint32_t flow_label;
  const uint8_t *src, *dst; /* 16 bytes each */
};

static inline int flame_ipv6(const struct flame_packet *p, struct flame_ipv6 *h) {
  const uint8_t *b = p->flags & FLAME_IPV6 ? flame_bytes(p, p->l3, 40) : NULL;
  if (!b) return 0;
  uint32_t first = flame_be32(b);
  *h = (struct flame_ipv6){
      .version = first >> 28, .dscp = first >> 22 & 63, .ecn = first >> 20 & 3, .flow_label = first & 0xfffff,
      .payload_len = flame_be16(b + 4), .next_header = b[6], .hop_limit = b[7], .src = b + 8, .dst = b + 24};
  return 1;
}

struct flame_tcp {
  uint16_t sport, dport, window, checksum, urgent;
  uint32_t seq, ack;
  uint8_t header_len, reserved /* four bits, the last of which is AE (RFC 9768) */, flags;
};

static inline int flame_tcp(const struct flame_packet *p, struct flame_tcp *h) {
  int is = p->proto == FLAME_TCP && flame_is_ip(p) && !(p->flags & FLAME_LATER_FRAGMENT);
  const uint8_t *b = is ? flame_bytes(p, p->l4, 20) : NULL;
  if (!b) return 0;
  *h = (struct flame_tcp){
      .sport = flame_be16(b), .dport = flame_be16(b + 2), .seq = flame_be32(b + 4), .ack = flame_be32(b + 8),
      .header_len = (uint8_t)((b[12] >> 4) * 4), .reserved = b[12] & 15, .flags = b[13],
      .window = flame_be16(b + 14),
      .checksum = flame_be16(b + 16), .urgent = flame_be16(b + 18)};
  return 1;
}

/* Returns the content of the first TCP option of this kind and stores its length; NULL if there is none. For
 * example, kind 8 has two timestamps (RFC 7323). */
static inline const uint8_t *flame_tcp_option(const struct flame_packet *p, uint8_t kind, uint32_t *len) {
  *len = 0;
  struct flame_tcp h;
  if (!flame_tcp(p, &h) || h.header_len < 20) return NULL;
  uint32_t size = flame_visible(p, p->l4 + 20u, h.header_len - 20u), at = 0;
  const uint8_t *b = size ? flame_bytes(p, p->l4 + 20u, size) : NULL;
  /* At most 40 bytes of options. */
  for (uint32_t i = 0; i < 40 && b && at < size; i++) {
    if (b[at] == 0) return NULL;
    if (b[at] == 1) {
      at++;
      continue;
    }
    uint32_t option_len = at + 1 < size ? b[at + 1] : 0;
    if (option_len < 2) return NULL;
    if (b[at] == kind) {
      if (at + option_len > size) return NULL;
      *len = option_len - 2;
      return b + at + 2;
    }
    at += option_len;
  }
  return NULL;
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

/* Returns the length of the payload in bytes by the IP header (and for UDP also its own), visible or not; -1
 * if there is no transport header, or if the length is hidden or is 0 because the packet is longer than the
 * field can hold. */
static inline int64_t flame_payload_len(const struct flame_packet *p) {
  if (!(p->flags & FLAME_TRANSPORT)) return -1;
  uint32_t headers = (uint32_t)p->l4 + p->l4_len - p->l3, stated = 0;
  const uint8_t *ip = flame_is_ip(p) ? flame_bytes(p, p->l3, p->flags & FLAME_IPV4 ? 4 : 6) : NULL;
  const uint8_t *udp = p->proto == FLAME_UDP ? flame_bytes(p, p->l4, 6) : NULL;
  if (ip && p->flags & FLAME_IPV4) {
    stated = flame_be16(ip + 2);
  } else if (ip) {
    stated = flame_be16(ip + 4);
    if (stated) stated += 40;
  }
  int64_t len = !stated ? -1 : stated > headers ? (int64_t)(stated - headers) : 0;
  if (udp && flame_be16(udp + 4) >= 8) {
    int64_t own = flame_be16(udp + 4) - 8;
    if (len < 0 || own < len) len = own;
  }
  return len;
}

/* Returns the visible bytes after the transport header, up to the end of the datagram. Padding by the link is
 * not payload. */
static inline const uint8_t *flame_payload(const struct flame_packet *p, uint32_t *len) {
  *len = 0;
  if (!(p->flags & FLAME_TRANSPORT)) return NULL;
  int64_t stated = flame_payload_len(p);
  uint32_t at = (uint32_t)p->l4 + p->l4_len;
  *len = flame_visible(p, at, stated < 0 ? UINT32_MAX : (uint32_t)stated);
  return *len ? flame_bytes(p, at, *len) : NULL;
}
