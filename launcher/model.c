/* A path in a topology is relative to the topology's file, and a name that is misspelt is misspelt there: so a failure
 * says the path as it was tried, and the line that gave it. */
#include "launcher/model.h"

#include <errno.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "topology/topology.h"

bool model_is_here(const struct topology *topology)
{
    struct text path = {0};
    bool here;

    topology_path(topology, topology->workload.generate.model.value, &path);
    here = access(text_string(&path), F_OK) == 0 || errno != ENOENT;
    text_done(&path);
    return here;
}

enum status model_open(const struct topology *topology, struct checkpoint **ret, struct error *err)
{
    const struct topology_string *model = &topology->workload.generate.model;
    struct text path = {0};
    enum status st;

    topology_path(topology, model->value, &path);
    st = checkpoint_open(text_string(&path), ret, err);
    text_done(&path);
    if (st != STATUS_OK) {
        struct text place = {0};

        topology_describe_position(topology, model->at, &place);
        error_wrap(err, st, "workload.generate.model (%s)", text_string(&place));
        text_done(&place);
    }
    return st;
}
