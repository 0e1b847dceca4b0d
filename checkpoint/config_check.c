/* The facts' mutual conditions. */
#include "checkpoint/config_check.h"

#include <inttypes.h>

enum status config_add_stop(const char *path, struct model_config *config, uint32_t token, struct error *err)
{
    for (int i = 0; i < config->stop_token_count; i++)
        if (config->stop_token[i] == token)
            return STATUS_OK;
    if (config->stop_token_count == MODEL_MAX_STOP_TOKENS)
        return error_set(err, STATUS_MODEL, "%s: more than %d stop tokens", path, MODEL_MAX_STOP_TOKENS);
    config->stop_token[config->stop_token_count++] = token;
    return STATUS_OK;
}

enum status config_check(const char *path, const struct model_config *config, struct error *err)
{
    if (config->kv_head_count > config->head_count || config->head_count % config->kv_head_count)
        return error_set(err, STATUS_MODEL,
                         "%s: invalid model: %" PRIu64 " query heads are no multiple of %" PRIu64 " key/value heads",
                         path, config->head_count, config->kv_head_count);
    if (config->head_dim % 2)
        return error_set(err, STATUS_MODEL,
                         "%s: invalid model: head_dim %" PRIu64 " is odd, rotary embedding turns pairs", path,
                         config->head_dim);
    if (config->rope_scaling.llama3 && config->rope_scaling.high_freq_factor <= config->rope_scaling.low_freq_factor)
        return error_set(err, STATUS_MODEL,
                         "%s: invalid model: rope scaling's high_freq_factor %g is not above low_freq_factor %g", path,
                         config->rope_scaling.high_freq_factor, config->rope_scaling.low_freq_factor);
    return STATUS_OK;
}
