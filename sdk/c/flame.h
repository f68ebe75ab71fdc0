/* A FLAME module in C includes this header in one file and exports the functions that the host calls
 * (docs/abi.md):
 *
 *   FLAME_EXPORT(flame_init)  uint64_t flame_init(const struct flame_init *init, uint32_t len)
 *   FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch)      required
 *   FLAME_EXPORT(flame_push)  uint64_t flame_push(uint32_t port, const struct flame_batch *batch)
 *                                   instead of flame_batch, for a module that forwards packets ([ports])
 *   FLAME_EXPORT(flame_tick)  uint64_t flame_tick(uint64_t now_ns)
 *   FLAME_EXPORT(flame_end)   uint64_t flame_end(uint64_t now_ns)
 *   FLAME_EXPORT(flame_message) uint64_t flame_message(const uint8_t *bytes, uint32_t len)
 *   FLAME_EXPORT(flame_export) uint64_t flame_export(void)
 *   FLAME_EXPORT(flame_import) uint64_t flame_import(const uint8_t *state, uint32_t len)
 *                                   of a module that keeps state ([state]): FLAME_STATE, FLAME_TAKEN
 *   FLAME_EXPORT(flame_pressure) uint64_t flame_pressure(uint64_t free)
 *                                   of a module that makes do with less memory: it can grow by `free` bytes
 *                                   only, or was refused more (flame_try_take)
 *   FLAME_EXPORT(flame_serve) uint64_t flame_serve(const uint8_t *data, uint32_t len)
 *                                   of a module that offers services ([[services]]): flame_request
 *   FLAME_EXPORT(flame_done)  uint64_t flame_done(const uint8_t *data, uint32_t len)
 *                                   of a module that calls some ([[uses]]): flame_outcome
 *
 * Each returns flame_output(FLAME_DONE). A call may write any number of rows: they wait in the instance's
 * memory until it returns. To take less memory, flame_tick and flame_end return flame_output(FLAME_MORE) when
 * flame_room() becomes short, and are called again. A module that exports flame_message gets one additional
 * instance, whose init->role is FLAME_SLOW, and to which the others send messages. */
#ifndef FLAME_H
#define FLAME_H

#include <stddef.h>
#include <stdint.h>

#define FLAME_ABI 1

enum { FLAME_FAST = 0, FLAME_SLOW = 1 };   /* flame_init.role */
enum { FLAME_DONE = 0, FLAME_MORE = 1 };   /* flame_output */

#include "flame/packet.h"
#include "flame/instance.h"
#include "flame/tables.h"
#include "flame/output.h"
#include "flame/frames.h"
#include "flame/services.h"

#endif
