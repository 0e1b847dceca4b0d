/* What ferry-mpi.so exports. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "backends/mpi/mpi_private.h"
#include "comm/plugin.h"

/* MPI allows this before MPI_Init. */
static int mpi_libraries(struct plugin_library *list)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    (void)MPI_Get_library_version(text, &length);
    list[0].name = "MPI";
    (void)snprintf(list[0].built, sizeof list[0].built, "%d.%d", MPI_VERSION, MPI_SUBVERSION);
    text[strcspn(text, "\n")] = '\0'; /* some say more in further lines */
    (void)snprintf(list[0].running, sizeof list[0].running, "%.*s", (int)sizeof list[0].running - 1, text);
    return 1;
}

extern const struct plugin ferry_plugin;

__attribute__((visibility("default"))) const struct plugin ferry_plugin = {
    .name = "mpi",
    .transport = &mpi_transport_ops,
    .libraries = mpi_libraries,
};
