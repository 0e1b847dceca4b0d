/* Finds and opens ferry-mpi.so and ferry-cuda.so, so that one `ferry`, or one libferry, runs with and without an MPI or
 * a GPU. */
#ifndef COMM_PLUGIN_H
#define COMM_PLUGIN_H

#include "comm/device.h"
#include "comm/transport.h"

/* The one symbol that a plugin exports, a struct plugin. */
#define PLUGIN_SYMBOL "ferry_plugin"

enum { PLUGIN_MAX_LIBRARIES = 4 };

/* A library that a plugin is linked to. */
struct plugin_library {
    const char *name;  /* "MPI", "CUDA runtime", "NCCL" */
    char built[32];    /* version that the plugin was built with: "13.0" */
    char running[200]; /* what is here, in its own words: "13.0", "Open MPI v4.1.4, ..."; "none" */
};

struct plugin {
    const char *name;                      /* of the file: "mpi", "cuda" */
    const struct transport_ops *transport; /* NULL: none */
    const struct device_ops *devices;      /* NULL: none */
    /* Its libraries, list [PLUGIN_MAX_LIBRARIES]; returns their number.  Needs no device, starts nothing. */
    int (*libraries)(struct plugin_library *list);
};

/* Open ferry-NAME.so and lend its table for the life of the process.  Looked for in $FERRY_PLUGIN_DIR when that is set,
 * then beside the file that this code lies in (the program, or libferry.so), then in the installation's folder as seen
 * from there: ferry/ beside a library, ../lib/ferry from a program.  path [path_bytes] receives the file's path ("it
 * says which it chose"); NULL: not wanted.
 * STATUS_ENVIRONMENT  no such file (the folders are listed), or it cannot be opened (why, and what to do) */
enum status plugin_open(const char *name, const struct plugin **ret, char *path, size_t path_bytes, struct error *err);

/* The same, when its transport is what is wanted.  STATUS_ENVIRONMENT also when it has none. */
enum status plugin_transport(const char *name, const struct transport_ops **ret, char *path, size_t path_bytes,
                             struct error *err);

#endif
