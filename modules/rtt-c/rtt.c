/* rtt-c: the module rtt in C, with the same records. ../rtt/README.md has the method; the names here
 * are those of the Rust source, file by file: segment, handshake, sample, histogram. */
#include "segment.h"

/* Handshakes: from a SYN to the first ACK in the same direction. */

#define MIRROR_NS 1000000u /* newest data again within this time are a copy by the capture */
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

FLAME_FLOWS(handshakes, struct pending, syn.last)
static struct handshakes pending;
static uint64_t ambiguous, copies;
static int require_synack;

static int again(struct sent *sent, const struct segment *s) {
  if (sent->times > 0 && flame_since(s->at, sent->last) < COPY_NS) {
    copies++;
    return 0;
  }
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

static struct pending *pending_find(const struct segment *s, const struct tuple *tuple, uint8_t kind) {
  struct pending *p;
  FLAME_FLOWS_EACH(&pending, s->hash, s->at, syn.last, p)
    if (wanted(p, s, tuple, kind)) break;
  return p;
}

static void endpoints(uint16_t table, const struct tuple *t) {
  struct flame_ip src = {(uint8_t)t->family, {0}}, dst = {(uint8_t)t->family, {0}};
  __builtin_memcpy(src.bytes, t->src, 16);
  __builtin_memcpy(dst.bytes, t->dst, 16);
  flame_reserved_row(table);
  flame_put_ip(&src);
  flame_u16(t->sport);
  flame_put_ip(&dst);
  flame_u16(t->dport);
}

static void count_handshake(uint64_t rtt);

static void first_ack(const struct segment *s) {
  struct pending *p = pending_find(s, &s->tuple, FLAME_ACK);
  if (!p) return;
  handshakes_remove(&pending, p);
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
  if (kind == FLAME_ACK) {
    first_ack(s);
  } else if (kind == FLAME_SYN) {
    struct pending *p = pending_find(s, &s->tuple, kind);
    if (!p || p->refused) {
      if (!p) p = handshakes_insert(&pending, s->hash, s->at);
      *p = (struct pending){.tuple = s->tuple, .next = s->seq + 1, .expect = s->seq + 1, .data = s->len};
    }
    again(&p->syn, s);
  } else if (kind == (FLAME_SYN | FLAME_ACK) || kind == (FLAME_RST | FLAME_ACK)) {
    struct tuple tuple = reversed(&s->tuple);
    struct pending *p = pending_find(s, &tuple, kind);
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
  uint64_t newest_at;
  uint32_t clock, newest_clock, seq, newest_seq, newest_start;
  uint8_t has_clock, has_seq;
};

struct connection {
  struct tuple tuple;
  uint64_t used;
  struct side sides[2];
};

FLAME_FLOWS(connections, struct connection, used)
static struct connections known;
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
  if (side->has_seq && s->seq == side->newest_start && end == side->newest_seq) {
    uint64_t since = s->at > side->newest_at ? s->at - side->newest_at : side->newest_at - s->at;
    if (since < MIRROR_NS) {
      copies++;
      return;
    }
  }
  if (side->has_seq && !at_or_after(s->seq, side->newest_seq)) {
    side->seq_at = 0;
  } else if (side->seq_at == 0) {
    side->seq_at = s->at;
    side->seq = end;
  }
  if (!side->has_seq || at_or_after(end, side->newest_seq)) {
    side->newest_seq = end;
    side->newest_start = s->seq;
    side->newest_at = s->at;
    side->has_seq = 1;
  }
  if (!s->has_clock) return;
  if (side->has_clock && (s->clock == side->newest_clock || !at_or_after(s->clock, side->newest_clock)))
    return;
  side->newest_clock = s->clock;
  side->has_clock = 1;
  if (side->clock_at == 0) {
    side->clock_at = s->at;
    side->clock = s->clock;
  }
}

static void sample(const struct segment *s) {
  struct tuple back = reversed(&s->tuple);
  struct connection *c;
  FLAME_FLOWS_EACH(&known, s->hash, s->at, used, c)
    if (same(&c->tuple, &s->tuple) || same(&c->tuple, &back)) break;
  if (s->flags & (FLAME_SYN | FLAME_RST)) {
    if (c) connections_remove(&known, c);
    return;
  }
  if (!c) {
    if (s->len == 0) return;
    c = connections_insert(&known, s->hash, s->at);
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
#define HEAD 4

/* ambiguous, evicted handshakes, evicted connections, copies, bins: also the message, little-endian. */
struct counts {
  uint64_t values[HEAD + BINS];
};

static struct counts counted, reported;

static uint32_t bin(uint64_t ns) {
  uint32_t bits = 63 - (uint32_t)__builtin_clzll(ns | 1);
  if (bits < LOW) return 0;
  if (bits >= HIGH) return BINS - 1;
  return (bits - LOW) * 4 + (uint32_t)(ns >> (bits - 2) & 3) + 1;
}

static uint64_t lower(uint32_t bin) {
  return bin == 0 ? 0 : (uint64_t)(4 + (bin - 1) % 4) << (LOW + (bin - 1) / 4 - 2);
}

static void count_handshake(uint64_t rtt) { counted.values[HEAD + bin(rtt)]++; }

static void send_counts(void) {
  counted.values[0] = ambiguous;
  counted.values[1] = pending.evicted;
  counted.values[2] = known.evicted;
  counted.values[3] = copies;
  struct counts news;
  uint64_t any = 0;
  for (uint32_t i = 0; i < HEAD + BINS; i++) any |= news.values[i] = counted.values[i] - reported.values[i];
  if (!any) return;
  flame_send(&news, sizeof news);
  reported = counted;
}

/* The calls. */

static int slow;

/* The bytes of the rows of a packet: a handshake, and a sample by each method. */
#define ROWS (66 + 2 * 63)

FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  slow = init->role == FLAME_SLOW;
  if (slow) return flame_output(FLAME_DONE);
  require_synack = flame_integer(init, len, "require_synack") != 0;
  samples = flame_integer(init, len, "samples") != 0;
  uint64_t timeout = (uint64_t)flame_integer(init, len, "handshake_timeout");
  handshakes_init(&pending, (uint64_t)flame_integer(init, len, "max_handshakes"), timeout);
  if (samples) connections_init(&known, (uint64_t)flame_integer(init, len, "max_connections"), IDLE_NS);
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  flame_reserve(batch->count * (uint32_t)ROWS);
  for (uint32_t i = 0; i < batch->count; i++) {
    struct segment s;
    if (!segment_of(flame_packet(batch, i), &s)) continue;
    handshake(&s);
    if (samples) sample(&s);
  }
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_tick) uint64_t flame_tick(uint64_t now_ns) {
  (void)now_ns;
  if (!slow) send_counts();
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_message) uint64_t flame_message(const uint8_t *bytes, uint32_t len) {
  for (uint32_t i = 0; len == sizeof counted && i < HEAD + BINS; i++)
    counted.values[i] += load64(bytes + 8 * i);
  return flame_output(FLAME_DONE);
}

static void report(void) {
  uint64_t handshakes = 0;
  for (uint32_t i = 0; i < BINS; i++) {
    uint64_t n = counted.values[HEAD + i];
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
  for (uint32_t i = 0; i < HEAD; i++) flame_u64(counted.values[i]);
  flame_finish();
}

FLAME_EXPORT(flame_end) uint64_t flame_end(uint64_t now_ns) {
  (void)now_ns;
  if (slow) {
    report();
  } else {
    send_counts();
  }
  return flame_output(FLAME_DONE);
}
