/* The transport over NCCL, for the plugin's table. */
#ifndef BACKENDS_NCCL_TRANSPORT_H
#define BACKENDS_NCCL_TRANSPORT_H

#include "comm/transport.h"

/* "nccl": messages in the memory of transport_options.memory's device over NCCL, everything else over the carrier. */
extern const struct transport_ops nccl_transport_ops;

#endif
