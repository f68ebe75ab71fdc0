/* What the measurements need of one TCP segment (RFC 9293, section 3.1; RFC 7323, section 3.2). */
#ifndef SEGMENT_H
#define SEGMENT_H

#include "flame.h"

#define TCP_LEAST 14 /* bytes that must be there: up to and with the flags */
#define TCP_OPTIONS 20

/* Two endpoints, from the sender to the receiver; IPv4 in the first four bytes of an address. */
struct tuple {
  uint64_t src[2], dst[2];
  uint16_t sport, dport;
  uint32_t family;
};

struct segment {
  struct tuple tuple;
  uint64_t at;
  uint32_t hash, seq, ack, len;
  uint32_t clock, echo; /* TCP timestamps (RFC 7323), if has_clock */
  uint8_t flags, has_clock;
};

static uint64_t load64(const uint8_t *b) {
  uint64_t value;
  __builtin_memcpy(&value, b, 8);
  return value;
}

static uint32_t load32(const uint8_t *b) {
  uint32_t value;
  __builtin_memcpy(&value, b, 4);
  return value;
}

static int same(const struct tuple *a, const struct tuple *b) {
  return a->src[0] == b->src[0] && a->src[1] == b->src[1] && a->dst[0] == b->dst[0] &&
         a->dst[1] == b->dst[1] &&
         a->sport == b->sport && a->dport == b->dport && a->family == b->family;
}

static struct tuple reversed(const struct tuple *t) {
  return (struct tuple){{t->dst[0], t->dst[1]}, {t->src[0], t->src[1]}, t->dport, t->sport, t->family};
}

static void timestamps(struct segment *s, const uint8_t *options, uint32_t len) {
  uint32_t at = 0;
  if (len >= 12 && load32(options) == 0x0a080101) { /* as nearly all stacks align it */
    at = 2;
  } else {
    for (int i = 0; i < 20; i++) { /* at most 40 bytes, two or more in each step */
      if (at < len && options[at] == 1) at++;
      if (at >= len || options[at] == 0) return;
      if (options[at] == 1) {
        at++;
        continue;
      }
      if (at + 1 >= len) return;
      uint32_t size = options[at + 1];
      if (options[at] == 8 && size == 10 && len >= at + 10) break;
      if (size < 2) return;
      at += size;
    }
    if (at + 10 > len || options[at] != 8) return;
  }
  s->has_clock = 1;
  s->clock = flame_be32(options + at + 2);
  s->echo = flame_be32(options + at + 6);
}

/* Whether the packet is a TCP segment, captured up to the flags. */
static int segment_of(const struct flame_packet *p, struct segment *s) {
  /* A packet without a time measures nothing. */
  if (p->proto != FLAME_TCP || p->flags & FLAME_LATER_FRAGMENT || !flame_is_ip(p) || !p->ts_ns) return 0;
  uint64_t ip_len;
  if (p->flags & FLAME_IPV4) {
    const uint8_t *ip = flame_bytes(p, p->l3, 20);
    if (!ip) return 0;
    s->tuple = (struct tuple){{load32(ip + 12), 0}, {load32(ip + 16), 0}, 0, 0, 4};
    ip_len = flame_be16(ip + 2);
  } else {
    const uint8_t *ip = flame_bytes(p, p->l3, 40);
    if (!ip) return 0;
    s->tuple = (struct tuple){{load64(ip + 8), load64(ip + 16)}, {load64(ip + 24), load64(ip + 32)}, 0, 0, 6};
    uint32_t len = flame_be16(ip + 4);
    ip_len = len == 0 ? 0 : 40 + len;
  }
  /* Segmentation offload leaves the length 0; the length of the frame applies then. */
  uint64_t end = ip_len == 0 ? p->wire_len : p->l3 + ip_len;
  uint64_t captured = end < p->cap_len ? end : p->cap_len;
  if (captured < (uint64_t)p->l4 + TCP_LEAST) return 0;
  uint32_t visible = (uint32_t)captured - p->l4;
  const uint8_t *tcp = flame_bytes(p, p->l4, visible);
  if (!tcp) return 0;
  s->tuple.sport = flame_be16(tcp);
  s->tuple.dport = flame_be16(tcp + 2);
  s->at = p->ts_ns;
  s->hash = p->hash;
  s->seq = flame_be32(tcp + 4);
  s->ack = flame_be32(tcp + 8);
  s->flags = tcp[13];
  uint32_t header = (uint32_t)(tcp[12] >> 4) * 4;
  s->len = end > p->l4 + header ? (uint32_t)(end - p->l4 - header) : 0;
  s->has_clock = 0;
  uint32_t options_end = header < visible ? header : visible;
  if (options_end > TCP_OPTIONS) timestamps(s, tcp + TCP_OPTIONS, options_end - TCP_OPTIONS);
  return 1;
}

static int at_or_after(uint32_t a, uint32_t b) { return (int32_t)(a - b) >= 0; }

#endif
