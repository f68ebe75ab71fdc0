/* An element that changes packets. It sees only their headers; the bytes after them stay as they are. */
#include "flame.h"

static uint8_t dscp;

FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  dscp = (uint8_t)flame_integer(init, len, "dscp");
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_push) uint64_t flame_push(uint32_t port, const struct flame_batch *batch) {
  static uint8_t copy[512]; /* the longest that `headers` shows */
  (void)port;
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    const uint8_t *ip = p->flags & FLAME_IPV4 ? flame_bytes(p, p->l3, 20) : NULL;
    if (!ip || p->cap_len > sizeof copy) {
      flame_forward(i, 0);
      continue;
    }
    __builtin_memcpy(copy, (const void *)(uintptr_t)p->addr, p->cap_len);
    uint8_t *header = copy + p->l3, tos = (uint8_t)(dscp << 2 | (header[1] & 3));
    /* RFC 1624: the checksum changes by the difference of the word. */
    uint32_t sum = (uint32_t)(~flame_be16(header + 10) & 0xffff) + (~(uint32_t)header[1] & 0xffff) + tos;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    header[1] = tos;
    header[10] = (uint8_t)(sum >> 8);
    header[11] = (uint8_t)sum;
    flame_forward_bytes(i, 0, copy, p->cap_len);
  }
  return flame_output(FLAME_DONE);
}
