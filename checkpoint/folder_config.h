/* What a Hugging Face folder's config.json and generation_config.json say, as struct model_config. */
#ifndef CHECKPOINT_FOLDER_CONFIG_H
#define CHECKPOINT_FOLDER_CONFIG_H

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/model_config.h"

/* Every message names file and key.  Defaults that were used are noted.  STATUS_MODEL (missing, of another kind, out of
 * range, contradictory), STATUS_UNSUPPORTED (architecture, rope scaling, activation, window: by name),
 * STATUS_STORAGE, STATUS_NOMEM. */
enum status folder_config(const char *folder, struct model_config *ret, struct text *notes, struct error *err);

#endif
