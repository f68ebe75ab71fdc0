/* Asks the service `names` for the name of each address that it sees for the first time: the example `labels`
 * of Rust, in C. It serves the number of the outcomes that came. */
#include "flame.h"

FLAME_MAP(known, struct flame_ip, uint8_t, 12)

/* Of the slow instance. */
static uint64_t asked;

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    struct flame_ip host;
    if (!flame_address(p, 1, &host) || host.family != 4 || known_find(&host)) continue;
    known_insert(&host, p->ts_ns);
    uint64_t token = 0;
    __builtin_memcpy(&token, host.bytes, 4);
    flame_call(0, token, host.bytes, 4);
  }
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_message) uint64_t flame_message(const uint8_t *bytes, uint32_t len) {
  (void)bytes;
  (void)len;
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_done) uint64_t flame_done(const uint8_t *data, uint32_t len) {
  struct flame_outcome done = flame_outcome(data, len);
  struct flame_ip host = {4, {0}};
  __builtin_memcpy(host.bytes, &done.token, 4);
  asked++;
  flame_row(0);
  flame_put_ip(&host);
  /* The service may send any bytes, and a text is UTF-8. */
  for (uint32_t i = 0; i < done.len && i < FLAME_MAX_REQUEST; i++)
    if (done.bytes[i] >= 0x80) done.len = 0;
  flame_put_text((const char *)done.bytes, done.len);
  flame_u8((uint8_t)done.outcome);
  flame_finish();
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_serve) uint64_t flame_serve(const uint8_t *data, uint32_t len) {
  struct flame_request request = flame_request(data, len);
  flame_reply(request.call, &asked, sizeof asked);
  return flame_output(FLAME_DONE);
}
