/* Senders that were ever seen, kept over updates and restarts: the example of Rust, in C. The state is the
 * number of packets, then 17 bytes for each host. */
#include "flame.h"

enum { PLACES = 16384, HEAD = 8 };

FLAME_MAP(seen, struct flame_ip, uint8_t, 12)

/* As they lie in the state. */
static struct {
  uint64_t packets;
  struct flame_ip hosts[PLACES];
} state;
static uint32_t count;

static void add(const struct flame_ip *host, uint64_t now_ns) {
  if (count == PLACES || seen_find(host)) return;
  seen_insert(host, now_ns);
  state.hosts[count++] = *host;
}

static void write_total(void) {
  flame_row(0);
  flame_u64(state.packets);
  flame_u64(count);
  flame_u64(seen_evicted);
  flame_finish();
}

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    struct flame_ip host;
    state.packets++;
    if (flame_address(p, 0, &host)) add(&host, p->ts_ns);
  }
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_tick) uint64_t flame_tick(uint64_t now_ns) {
  (void)now_ns;
  write_total();
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_end) uint64_t flame_end(uint64_t now_ns) {
  (void)now_ns;
  write_total();
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_export) uint64_t flame_export(void) {
  return FLAME_STATE(&state, HEAD + count * sizeof state.hosts[0]);
}

FLAME_EXPORT(flame_import) uint64_t flame_import(const uint8_t *bytes, uint32_t len) {
  uint32_t hosts = (len - HEAD) / sizeof state.hosts[0];
  if (len < HEAD || hosts > PLACES || HEAD + hosts * sizeof state.hosts[0] != len) return FLAME_REFUSED;
  __builtin_memcpy(&state.packets, bytes, HEAD);
  for (uint32_t i = 0; i < hosts && i < PLACES; i++) {
    struct flame_ip host;
    __builtin_memcpy(&host, bytes + HEAD + i * sizeof host, sizeof host);
    add(&host, 0);
  }
  return FLAME_TAKEN;
}
