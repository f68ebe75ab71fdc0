/* rtt-c: the module rtt in C, with the same records. ../rtt/README.md has the method; the names here
 * are those of the Rust source, file by file: segment, sets, handshake, sample, histogram. */
#define FLAME_TICK
#define FLAME_END
#define FLAME_SLOW
#include "flame.h"

/* Segment: what the measurements need of one TCP segment (RFC 9293, section 3.1). */

#define PROTO_TCP 6
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
  return a->src[0] == b->src[0] && a->src[1] == b->src[1] && a->dst[0] == b->dst[0] && a->dst[1] == b->dst[1] &&
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
    for (int i = 0; i < 40; i++) {
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
  if (p->proto != PROTO_TCP || p->flags & FLAME_LATER_FRAGMENT || !flame_is_ip(p)) return 0;
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
  /* Segmentation offload leaves no length behind; then the frame's says it. */
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

/* Sets of eight entries, found by hash, the least recently used replaced. */

#define WAYS 8

struct sets {
  uint32_t (*tags)[WAYS]; /* 0 where there is no entry */
  uint32_t shift;
  uint64_t timeout, evicted;
};

/* Entries in a table with room for `capacity`. */
static uint32_t sets_init(struct sets *t, uint64_t capacity, uint64_t timeout) {
  uint32_t bits = 1;
  while (((uint64_t)WAYS << bits) < capacity) bits++;
  t->shift = 32 - bits;
  t->timeout = timeout;
  t->tags = flame_alloc(sizeof(*t->tags) << bits);
  return WAYS << bits;
}

static uint32_t set_of(const struct sets *t, uint32_t hash) { return hash * 0x9e3779b1u >> t->shift; }

static uint64_t since(uint64_t now, uint64_t then) { return now > then ? now - then : 0; }

/* Handshakes: from a SYN to the first ACK in the same direction. */

#define COPY_NS 10000000u /* closer equal packets were captured twice */

struct sent {
  uint32_t times, first_clock, last_clock, has_clock;
  uint64_t first, last;
};

struct pending {
  struct tuple tuple;
  uint32_t next, expect, data;
  uint8_t refused, has_half;
  struct sent syn, synack;
  int64_t half;
};

static struct sets pending_sets;
static struct pending *pending;
static uint64_t ambiguous;
static int require_synack;

static int again(struct sent *sent, const struct segment *s) {
  if (sent->times > 0 && since(s->at, sent->last) < COPY_NS) return 0;
  uint32_t clock = s->has_clock ? s->clock : 0;
  if (sent->times == 0) {
    sent->first = s->at;
    sent->first_clock = clock;
    sent->has_clock = s->has_clock;
  }
  sent->has_clock &= s->has_clock;
  sent->last = s->at;
  sent->last_clock = clock;
  if (sent->times != UINT32_MAX) sent->times++;
  return 1;
}

/* Whether it is certain which copy the segment answers, and when that was sent. */
static int answered(const struct sent *sent, const struct segment *s, uint64_t *when) {
  if (sent->times == 1) {
    *when = sent->first;
    return 1;
  }
  if (!s->has_clock || !sent->has_clock || sent->first_clock == sent->last_clock) return 0;
  *when = s->echo == sent->last_clock ? sent->last : sent->first;
  return s->echo == sent->last_clock || s->echo == sent->first_clock;
}

/* What each kind of segment looks for among the pending handshakes. */
static int wanted(const struct pending *p, const struct segment *s, const struct tuple *tuple, uint8_t kind) {
  if (kind == FLAME_SYN) {
    if (p->next != s->seq + 1) return 0;
  } else if (kind == FLAME_ACK) {
    if (p->expect != s->seq || (require_synack && p->synack.times == 0)) return 0;
  } else {
    if (s->ack - p->next > p->data) return 0;
    if (kind & FLAME_RST && p->synack.times > 0) return 0;
  }
  return same(&p->tuple, tuple);
}

static struct pending *pending_find(const struct segment *s, const struct tuple *tuple, uint8_t kind, uint32_t *tag) {
  uint32_t set = set_of(&pending_sets, s->hash);
  for (uint32_t way = 0; way < WAYS; way++) {
    if (pending_sets.tags[set][way] != (s->hash | 1)) continue;
    struct pending *p = &pending[set * WAYS + way];
    if (!wanted(p, s, tuple, kind) || since(s->at, p->syn.last) > pending_sets.timeout) continue;
    *tag = set * WAYS + way;
    return p;
  }
  return NULL;
}

static struct pending *pending_place(const struct segment *s) {
  uint32_t set = set_of(&pending_sets, s->hash), chosen = 0;
  uint32_t *tags = pending_sets.tags[set];
  struct pending *entries = &pending[set * WAYS];
  for (uint32_t way = 0; way < WAYS; way++) {
    if (tags[way] == 0) {
      chosen = way;
      break;
    }
    if (entries[way].syn.last < entries[chosen].syn.last) chosen = way;
  }
  if (tags[chosen] != 0 && since(s->at, entries[chosen].syn.last) <= pending_sets.timeout) pending_sets.evicted++;
  tags[chosen] = s->hash | 1;
  return &entries[chosen];
}

static void endpoints(uint16_t table, const struct tuple *t) {
  struct flame_ip src = {(uint8_t)t->family, {0}}, dst = {(uint8_t)t->family, {0}};
  __builtin_memcpy(src.bytes, t->src, 16);
  __builtin_memcpy(dst.bytes, t->dst, 16);
  flame_row(table);
  flame_ip(src);
  flame_u16(t->sport);
  flame_ip(dst);
  flame_u16(t->dport);
}

static void count_handshake(uint64_t rtt);

static void first_ack(const struct segment *s) {
  uint32_t tag;
  struct pending *p = pending_find(s, &s->tuple, FLAME_ACK, &tag);
  if (!p) return;
  pending_sets.tags[tag / WAYS][tag % WAYS] = 0;
  int64_t rtt = -1;
  uint64_t when;
  if (p->synack.times > 0) {
    if (p->has_half && answered(&p->synack, s, &when)) rtt = (int64_t)((uint64_t)p->half + (s->at - when));
  } else if (p->syn.times == 1) {
    rtt = (int64_t)(s->at - p->syn.first);
  }
  if (rtt < 0) { /* also if the capture's clock went back */
    ambiguous++;
    return;
  }
  endpoints(0, &p->tuple);
  flame_u64(p->syn.first);
  flame_i64(rtt);
  flame_u32(p->syn.times - 1);
  flame_finish();
  count_handshake((uint64_t)rtt);
}

static void handshake(const struct segment *s) {
  uint8_t kind = s->flags & (FLAME_SYN | FLAME_ACK | FLAME_RST);
  uint32_t tag;
  if (kind == FLAME_ACK) {
    first_ack(s);
  } else if (kind == FLAME_SYN) {
    struct pending *p = pending_find(s, &s->tuple, kind, &tag);
    if (!p || p->refused) {
      if (!p) p = pending_place(s);
      *p = (struct pending){.tuple = s->tuple, .next = s->seq + 1, .expect = s->seq + 1, .data = s->len};
    }
    again(&p->syn, s);
  } else if (kind == (FLAME_SYN | FLAME_ACK) || kind == (FLAME_RST | FLAME_ACK)) {
    struct tuple tuple = reversed(&s->tuple);
    struct pending *p = pending_find(s, &tuple, kind, &tag);
    if (!p) return;
    if (kind & FLAME_RST) {
      p->refused = 1;
      return;
    }
    if (!again(&p->synack, s)) return;
    p->expect = s->ack;
    uint64_t when;
    if (!p->has_half && (p->synack.times == 1 || p->syn.times > 1) && answered(&p->syn, s, &when)) {
      p->has_half = 1;
      p->half = (int64_t)(s->at - when);
    }
  }
}

/* Samples: from a segment with data to its answer. */

#define IDLE_NS 300000000000u
enum { TIMESTAMP, SEQUENCE };

struct side {
  uint64_t clock_at, seq_at; /* 0 when nothing is under way */
  uint32_t clock, newest_clock, seq, newest_seq;
  uint8_t has_clock, has_seq;
};

struct connection {
  struct tuple tuple;
  uint64_t used;
  struct side sides[2];
};

static struct sets connection_sets;
static struct connection *connections;
static int samples;

static void sample_row(const struct segment *s, const struct tuple *sender, uint64_t at, uint8_t method) {
  if (s->at < at) return;
  endpoints(1, sender);
  flame_u64(s->at);
  flame_i64((int64_t)(s->at - at));
  flame_u8(method);
  flame_finish();
}

static void side_answered(struct side *side, const struct segment *s, const struct tuple *sender) {
  if (s->has_clock && side->clock_at != 0 && at_or_after(s->echo, side->clock)) {
    if (s->echo == side->clock) sample_row(s, sender, side->clock_at, TIMESTAMP);
    side->clock_at = 0;
  }
  if (side->seq_at != 0 && at_or_after(s->ack, side->seq)) {
    sample_row(s, sender, side->seq_at, SEQUENCE);
    side->seq_at = 0;
  }
}

static void side_sent(struct side *side, const struct segment *s) {
  uint32_t end = s->seq + s->len;
  if (side->has_seq && !at_or_after(s->seq, side->newest_seq)) {
    side->seq_at = 0;
  } else if (side->seq_at == 0) {
    side->seq_at = s->at;
    side->seq = end;
  }
  if (!side->has_seq || at_or_after(end, side->newest_seq)) {
    side->newest_seq = end;
    side->has_seq = 1;
  }
  if (!s->has_clock) return;
  if (side->has_clock && (s->clock == side->newest_clock || !at_or_after(s->clock, side->newest_clock))) return;
  side->newest_clock = s->clock;
  side->has_clock = 1;
  if (side->clock_at == 0) {
    side->clock_at = s->at;
    side->clock = s->clock;
  }
}

static void sample(const struct segment *s) {
  struct tuple back = reversed(&s->tuple);
  uint32_t set = set_of(&connection_sets, s->hash);
  uint32_t *tags = connection_sets.tags[set];
  struct connection *entries = &connections[set * WAYS], *c = NULL;
  uint32_t way;
  for (way = 0; way < WAYS; way++) {
    if (tags[way] != (s->hash | 1)) continue;
    c = &entries[way];
    if ((same(&c->tuple, &s->tuple) || same(&c->tuple, &back)) && since(s->at, c->used) <= connection_sets.timeout)
      break;
    c = NULL;
  }
  if (s->flags & (FLAME_SYN | FLAME_RST)) {
    if (c) tags[way] = 0;
    return;
  }
  if (!c) {
    if (s->len == 0) return;
    uint32_t chosen = 0;
    for (way = 0; way < WAYS; way++) {
      if (tags[way] == 0) {
        chosen = way;
        break;
      }
      if (entries[way].used < entries[chosen].used) chosen = way;
    }
    c = &entries[chosen];
    if (tags[chosen] != 0 && since(s->at, c->used) <= connection_sets.timeout) connection_sets.evicted++;
    tags[chosen] = s->hash | 1;
    *c = (struct connection){.tuple = s->tuple, .used = s->at};
  }
  if (s->at > c->used) c->used = s->at;
  int from = !same(&c->tuple, &s->tuple);
  if (s->flags & FLAME_ACK) side_answered(&c->sides[1 - from], s, &back);
  if (s->len > 0) side_sent(&c->sides[from], s);
}

/* Histogram: four bins for each doubling, one below and one above. */

#define LOW 12
#define HIGH 37
#define BINS ((HIGH - LOW) * 4 + 2)

/* ambiguous, evicted handshakes, evicted connections, bins: also the message, little-endian. */
struct counts {
  uint64_t values[3 + BINS];
};

static struct counts counted, told;

static uint32_t bin(uint64_t ns) {
  uint32_t bits = 63 - (uint32_t)__builtin_clzll(ns | 1);
  if (bits < LOW) return 0;
  if (bits >= HIGH) return BINS - 1;
  return (bits - LOW) * 4 + (uint32_t)(ns >> (bits - 2) & 3) + 1;
}

static uint64_t lower(uint32_t bin) {
  return bin == 0 ? 0 : (uint64_t)(4 + (bin - 1) % 4) << (LOW + (bin - 1) / 4 - 2);
}

static void count_handshake(uint64_t rtt) { counted.values[3 + bin(rtt)]++; }

static void tell(void) {
  counted.values[0] = ambiguous;
  counted.values[1] = pending_sets.evicted;
  counted.values[2] = connection_sets.evicted;
  struct counts news;
  uint64_t any = 0;
  for (uint32_t i = 0; i < 3 + BINS; i++) any |= news.values[i] = counted.values[i] - told.values[i];
  if (!any) return;
  flame_message(&news, sizeof news);
  told = counted;
}

/* The calls. */

void module_init(const struct flame_init *init) {
  (void)init;
  if (flame_is_slow()) return;
  require_synack = flame_integer("require_synack") != 0;
  samples = flame_integer("samples") != 0;
  uint64_t timeout = (uint64_t)flame_integer("handshake_timeout");
  pending = flame_alloc(sets_init(&pending_sets, (uint64_t)flame_integer("max_handshakes"), timeout) * sizeof *pending);
  if (samples) {
    uint64_t capacity = (uint64_t)flame_integer("max_connections");
    connections = flame_alloc(sets_init(&connection_sets, capacity, IDLE_NS) * sizeof *connections);
  }
}

void module_batch(const struct flame_batch *batch) {
  for FLAME_PACKETS(batch, p) {
    struct segment s;
    if (!segment_of(p, &s)) continue;
    handshake(&s);
    if (samples) sample(&s);
  }
}

int module_tick(uint64_t now_ns) {
  (void)now_ns;
  if (!flame_is_slow()) tell();
  return FLAME_DONE;
}

void module_message(const uint8_t *bytes, uint32_t len) {
  if (len != sizeof counted) return;
  for (uint32_t i = 0; i < 3 + BINS; i++) counted.values[i] += load64(bytes + 8 * i);
}

int module_end(uint64_t now_ns) {
  (void)now_ns;
  if (!flame_is_slow()) {
    tell();
    return FLAME_DONE;
  }
  uint64_t handshakes = 0;
  for (uint32_t i = 0; i < BINS; i++) {
    uint64_t n = counted.values[3 + i];
    if (n == 0) continue;
    handshakes += n;
    flame_row(2);
    flame_i64((int64_t)lower(i));
    flame_i64(i == BINS - 1 ? INT64_MAX : (int64_t)lower(i + 1));
    flame_u64(n);
    flame_finish();
  }
  flame_row(3);
  flame_u64(handshakes);
  for (uint32_t i = 0; i < 3; i++) flame_u64(counted.values[i]);
  flame_finish();
  return FLAME_DONE;
}
