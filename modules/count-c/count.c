/* Packets and bytes by protocol: the module count, in C. See modules/count/README.md. */
#include "flame.h"

enum { PACKETS, WIRE_BYTES, IPV4, IPV6, TCP, UDP, ICMP, SCTP, TCP_SYN, OTHER, COLUMNS };

static uint64_t sums[COLUMNS]; /* fast: since the last message; slow: since the last interval */
static uint64_t total[COLUMNS];
static uint64_t interval_ns; /* the length of an interval, or 0 */
static uint64_t closed_ns;   /* the end of the last one, or UINT64_MAX */
static int slow;

static void write_row(uint16_t table, const uint64_t *columns, uint64_t end_ns) {
  flame_row(table);
  if (table == 1) {
    uint64_t before = end_ns > interval_ns ? end_ns - interval_ns : 0;
    flame_u64(closed_ns == UINT64_MAX ? before : closed_ns);
    flame_u64(end_ns);
    closed_ns = end_ns;
  }
  for (int i = 0; i < COLUMNS; i++) flame_u64(columns[i]);
  flame_finish();
}

/* Slow: closes an interval. Fast: sends what was counted since the last time. */
static void close_interval(uint64_t now_ns) {
  if (slow) {
    for (int i = 0; i < COLUMNS; i++) total[i] += sums[i];
    if (interval_ns) write_row(1, sums, now_ns);
  } else {
    flame_send(sums, sizeof sums);
  }
  __builtin_memset(sums, 0, sizeof sums);
}

FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  (void)len;
  slow = init->role == FLAME_SLOW;
  /* Under a resolution, intervals are as long as the time between two ticks. */
  interval_ns = init->interval_ns ? init->tick_ns : 0;
  closed_ns = UINT64_MAX;
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  const struct flame_packet *d = flame_descriptors(batch);
  for (uint32_t i = 0; i < batch->count; i++, d++) {
    uint64_t ip = (d->flags & (FLAME_IPV4 | FLAME_IPV6)) != 0;
    sums[WIRE_BYTES] += d->wire_len;
    sums[IPV4] += (d->flags & FLAME_IPV4) != 0;
    sums[IPV6] += (d->flags & FLAME_IPV6) != 0;
    sums[TCP] += ip & (d->proto == FLAME_TCP);
    sums[UDP] += ip & (d->proto == FLAME_UDP);
    sums[ICMP] += ip & ((d->proto == FLAME_ICMP) | (d->proto == FLAME_ICMPV6));
    sums[SCTP] += ip & (d->proto == FLAME_SCTP);
    uint64_t is_syn = (d->tcp_flags & (FLAME_SYN | FLAME_ACK)) == FLAME_SYN;
    sums[TCP_SYN] += ip & (d->proto == FLAME_TCP) & is_syn;
    sums[OTHER] += !ip;
  }
  sums[PACKETS] += batch->count;
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_message) uint64_t flame_message(const uint8_t *bytes, uint32_t len) {
  uint64_t part[COLUMNS];
  if (len != sizeof part) __builtin_trap();
  __builtin_memcpy(part, bytes, sizeof part);
  for (int i = 0; i < COLUMNS; i++) sums[i] += part[i];
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_tick) uint64_t flame_tick(uint64_t now_ns) {
  if (interval_ns) close_interval(now_ns);
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_end) uint64_t flame_end(uint64_t now_ns) {
  /* The last interval ends where it would if packets followed. */
  int has_ticks = interval_ns && interval_ns != UINT64_MAX;
  uint64_t end_ns = has_ticks && now_ns ? (now_ns / interval_ns + 1) * interval_ns : now_ns;
  close_interval(end_ns);
  if (slow) write_row(0, total, now_ns);
  return flame_output(FLAME_DONE);
}
