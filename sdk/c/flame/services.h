/* A part of flame.h: calls of services, and their outcomes. */

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
