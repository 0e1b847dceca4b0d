/* What holds for a model's facts whatever file they come from: limits, and what must agree. */
#ifndef CHECKPOINT_CONFIG_CHECK_H
#define CHECKPOINT_CONFIG_CHECK_H

#include "base/status.h"
#include "checkpoint/model_config.h"

#define CONFIG_MAX_LAYERS ((uint64_t)4096)
#define CONFIG_MAX_HIDDEN ((uint64_t)1 << 20)
#define CONFIG_MAX_FFN ((uint64_t)1 << 22)
#define CONFIG_MAX_VOCAB ((uint64_t)1 << 24)
#define CONFIG_MAX_HEADS ((uint64_t)1 << 16)
#define CONFIG_MAX_HEAD_DIM ((uint64_t)1 << 14)
#define CONFIG_MAX_CONTEXT ((uint64_t)1 << 31)
#define CONFIG_MIN_EPSILON 1e-30
#define CONFIG_MAX_EPSILON 1.0
#define CONFIG_MIN_THETA 1.0
#define CONFIG_MAX_THETA 1e15
/* The base of the rotary embedding that every family uses when its file names none. */
#define CONFIG_DEFAULT_THETA 10000.0

/* Add a stop token unless it is there already.  path is for the message.  STATUS_MODEL: more than
 * MODEL_MAX_STOP_TOKENS. */
enum status config_add_stop(const char *path, struct model_config *config, uint32_t token, struct error *err);

/* Refuse heads that cannot be dealt, an odd head_dim, contradictory rope scaling.  STATUS_MODEL. */
enum status config_check(const char *path, const struct model_config *config, struct error *err);

#endif
