/* RTLD_LOCAL keeps the MPI library's names to itself; the module is never closed, since MPI's threads and exit
 * functions outlive any use. */
#include "comm/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDERS = 4 };

/* The file that this code lies in: libferry.so, or the program. */
static void own_file(char path[PATH_MAX])
{
    static const char here = 0;
    struct link_map *map = NULL;
    Dl_info info;
    ssize_t length;

    /* The loader knows a library by its path, and a program by no name at all. */
    if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) && map && map->l_name[0] && realpath(map->l_name, path))
        return;
    length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
}

/* The folders to look in, in order; an empty one is skipped. */
static void list_folders(char folders[FOLDERS][PATH_MAX])
{
    const char *chosen = getenv("FERRY_PLUGIN_DIR");
    char *slash;

    (void)snprintf(folders[0], PATH_MAX, "%s", chosen ? chosen : "");
    own_file(folders[1]);
    slash = strrchr(folders[1], '/');
    if (slash)
        *slash = '\0';
    if (snprintf(folders[2], PATH_MAX, "%s/ferry", folders[1]) >= PATH_MAX)
        folders[2][0] = '\0';
    if (FERRY_PLUGIN_LIBDIR[0] == '/')
        (void)snprintf(folders[3], PATH_MAX, "%s", FERRY_PLUGIN_LIBDIR);
    else if (snprintf(folders[3], PATH_MAX, "%s/%s", folders[1], FERRY_PLUGIN_LIBDIR) >= PATH_MAX)
        folders[3][0] = '\0';
}

/* What to tell a user of each plugin. */
struct need {
    const char *name;
    const char *libraries; /* "build Ferry where LIBRARIES ..." */
    const char *setup;
    const char *open;
};

static const struct need needs[] = {
    {"mpi", "an MPI is", "meson setup -Dmpi=enabled",
     "load the MPI that it was built with (its module, or LD_LIBRARY_PATH), or rebuild Ferry against the one that is "
     "here"},
    {"cuda", "CUDA 13 and NCCL are", "meson setup -Dcuda=enabled",
     "install the CUDA 13 runtime and NCCL, or name the folders that hold libcudart.so.13 and libnccl.so.2 in "
     "LD_LIBRARY_PATH"},
    {"cuda-staged", "CUDA 13 is", "meson setup -Dcuda=enabled",
     "install the CUDA 13 runtime, or name the folder that holds libcudart.so.13 in LD_LIBRARY_PATH"},
    {NULL, "its libraries are", "meson setup", "rebuild it with this Ferry"},
};

static const struct need *need_of(const char *name)
{
    const struct need *need = needs;

    while (need->name && strcmp(need->name, name) != 0)
        need++;
    return need;
}

static enum status not_found(const char *name, char folders[FOLDERS][PATH_MAX], struct error *err)
{
    const struct need *need = need_of(name);

    return error_set(err, STATUS_ENVIRONMENT,
                     "ferry-%s.so is in none of %.400s%s%.400s, %.400s, %.400s: build Ferry where %s installed "
                     "(%s), or set FERRY_PLUGIN_DIR to the folder that holds it",
                     name, folders[0], folders[0][0] ? ", " : "", folders[1], folders[2], folders[3], need->libraries,
                     need->setup);
}

static enum status find(const char *name, char *path, size_t path_bytes, struct error *err)
{
    char folders[FOLDERS][PATH_MAX];

    list_folders(folders);
    for (int i = 0; i < FOLDERS; i++) {
        int length = snprintf(path, path_bytes, "%s/ferry-%s.so", folders[i], name);

        if (folders[i][0] && length > 0 && (size_t)length < path_bytes && access(path, F_OK) == 0)
            return STATUS_OK;
    }
    return not_found(name, folders, err);
}

enum status plugin_open(const char *name, const struct plugin **ret, char *path, size_t path_bytes, struct error *err)
{
    char found[PATH_MAX + 64];
    enum status st = find(name, found, sizeof found, err);
    const struct plugin *plugin;
    void *module;

    if (st)
        return st;
    if (path)
        (void)snprintf(path, path_bytes, "%s", found);
    module = dlopen(found, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return error_set(err, STATUS_ENVIRONMENT, "%.300s cannot be opened: %.800s; %s", found, dlerror(),
                         need_of(name)->open);
    plugin = dlsym(module, PLUGIN_SYMBOL);
    if (!plugin || strcmp(plugin->name, name) != 0) {
        dlclose(module);
        return error_set(err, STATUS_ENVIRONMENT, "%.300s is no plugin of Ferry named %s: rebuild it", found, name);
    }
    *ret = plugin;
    return STATUS_OK;
}

enum status plugin_transport(const char *name, const struct transport_ops **ret, char *path, size_t path_bytes,
                             struct error *err)
{
    const struct plugin *plugin = NULL;
    enum status st = plugin_open(name, &plugin, path, path_bytes, err);

    if (st != STATUS_OK)
        return st;
    if (!plugin->transport)
        return error_set(err, STATUS_ENVIRONMENT, "ferry-%s.so was built without its transport: rebuild it", name);
    *ret = plugin->transport;
    return STATUS_OK;
}
