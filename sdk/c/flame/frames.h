/* A part of flame.h: packets that a module forwards, holds and makes, and frames that it sends. */

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
