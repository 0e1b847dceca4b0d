/* All ranks agree on who works on which device, before there is a session. */
#ifndef COMM_DEVICE_MEETING_H
#define COMM_DEVICE_MEETING_H

#include <sched.h>
#include <stdbool.h>

#include "comm/device_choice.h"
#include "comm/transport.h"

/* What this process sees: its host, the NUMA node that it is bound to, the devices of ops.  why, cut at 1015 bytes:
 * with ops NULL why none was opened; with ops why there are no messages between devices, NULL: there are.  word: the
 * device that the user names, an index, PCI id or UUID; NULL: any. Asks the driver, which may take a moment; nothing of
 * other ranks. STATUS_USAGE: there is no such device. */
enum status device_offer_read(const struct device_ops *ops, const char *why, enum device_wish wish, const char *word,
                              struct device_offer *ret, struct error *err);

/* Are all cores of set within a list as the kernel writes it ("0-7,16-23")? */
bool device_cores_within(const cpu_set_t *set, size_t bytes, const char *list);

/* What may be behind a process that sees no device, to be put behind that sentence; "" when nothing is known.  The
 * values of CUDA_VISIBLE_DEVICES, SLURM_STEP_ID and SLURM_STEP_GPUS, NULL: not set. */
void device_hint(const char *visible, const char *slurm_step, const char *slurm_gpus, char *text, size_t text_bytes);

/* Every rank hands in its offer and gets the decision with its own device.  Collective over the transport's world,
 * before a session is made of it; blocks until deadline_ns at rank 0, which collects, decides, and names who is
 * missing; elsewhere 3 s longer at most.
 * STATUS_TIMEOUT  names the ranks that have not come (rank 0) or says that rank 0 has not answered
 * STATUS_MISMATCH another version, STATUS_NOMEM, what the transport says.  Then the transport must not be used again.
 */
enum status device_meet(const struct transport_ops *ops, struct transport *transport, const struct device_offer *offer,
                        uint64_t deadline_ns, struct device_verdict *ret, struct error *err);

#endif
